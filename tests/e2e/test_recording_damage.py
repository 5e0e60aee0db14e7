"""Each kind of damage to a recording is named with the file, in JSON and text, and such a recording is never complete."""
import shutil

import pytest

import recording_mutations
from conftest import manifest_of
from recording_parts import FrameFile, frame_files, process_directories, report_difference

COMPLETE_TEXT = "nothing; the recording is complete"


@pytest.fixture(scope="module")
def sound(whyrss, tmp_path_factory):
    """Recordings of process trees, complete; tests damage copies of them."""
    return recording_mutations.make_recordings(whyrss.program, tmp_path_factory.mktemp("sound"))


@pytest.fixture
def damaged(whyrss, sound, tmp_path):
    """damaged(CHANGE, name=...) -> the JSON report of a copy that CHANGE(copy) was made to, after the checks of all."""
    def run(change, base="tree"):
        copy = tmp_path / "copy.whyrss"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sound[base], copy)
        named = change(copy)
        text = whyrss.run("report", copy)
        shutil.rmtree(copy)
        shutil.copytree(sound[base], copy)
        change(copy)
        report = whyrss.report(copy)
        assert text.returncode == 0, text.stderr
        assert not report["recording"]["complete"]
        assert report["recording"]["incomplete_why"]
        names = [named] if isinstance(named, str) else named
        for name in names:
            assert any(name in note for note in report["recording"]["lost"]["notes"]), (name, report["recording"]["lost"])
            assert name in text.stdout
        assert COMPLETE_TEXT not in text.stdout
        assert "\nincomplete: " in text.stdout
        return report
    return run


def name_of(path):
    return f"{path.parent.name}/{path.name}"


def each_file(copy):
    """Files with frames of a process, the ones with many frames first."""
    files = [path for path in frame_files(copy) if path.name != "symbols.zst"]
    return sorted(files, key=lambda path: -len(FrameFile.read(path).frames))


def change_frames(change, index=0):
    """Of one file of the recording: change(frames) in place."""
    def run(copy):
        path = each_file(copy)[index]
        file = FrameFile.read(path)
        change(file.frames)
        file.write(path)
        return name_of(path)
    return run


def test_the_sound_one_is_complete(whyrss, sound):
    for recording in sound.values():
        assert len(process_directories(recording)) >= 4
        report = whyrss.report(recording)
        assert report["recording"]["complete"] and report["recording"]["lost"]["notes"] == []
        assert COMPLETE_TEXT in whyrss.run("report", recording).stdout
        manifest = manifest_of(recording)
        listed = {entry["directory"]: [entry["events"], entry["pages"]] for entry in manifest["processes"]}
        assert listed == {path.name: [len(FrameFile.read(path / name).frames) for name in ("events.zst", "pages.zst")]
                          for path in process_directories(recording)}


@pytest.mark.parametrize("which", range(4))
def test_deleted_process(damaged, which):
    def change(copy):
        path = process_directories(copy)[which]
        shutil.rmtree(path)
        return path.name + ": missing"
    assert len(damaged(change)["processes"]) == 3


def test_all_processes_deleted(damaged):
    def change(copy):
        names = [path.name for path in process_directories(copy)]
        for name in names:
            shutil.rmtree(copy / name)
        return names
    assert damaged(change)["processes"] == []


@pytest.mark.parametrize("base", ["tree", "exact"])
@pytest.mark.parametrize("index", range(8))
def test_each_file_cut_at_each_kind_of_place(damaged, sound, base, index):
    frames = FrameFile.read(each_file(sound[base])[index]).frames
    for kept in {0, len(frames) // 2, len(frames) - 1}:
        damaged(change_frames(lambda frames, kept=kept: frames.__delitem__(slice(kept, None)), index), base)


@pytest.mark.parametrize("base", ["tree", "exact"])
def test_frame_cut_out(damaged, base):
    report = damaged(change_frames(lambda frames: frames.pop(1)), base)
    assert "frame 2 of " in "\n".join(report["recording"]["lost"]["notes"])


def test_frames_swapped_or_doubled_count_as_before(whyrss, damaged, sound):
    """Nothing is missing, so all figures are the same; but the file was changed."""
    def swap(frames):
        frames[1], frames[-1] = frames[-1], frames[1]
    whole = whyrss.report(sound["tree"])
    for change in (swap, lambda frames: frames.insert(2, frames[1]), lambda frames: frames.append(frames[0]),
                   lambda frames: frames.reverse()):
        assert report_difference(whole, damaged(change_frames(change))) is None


def test_frame_of_another_process(damaged):
    def change(copy):
        first, second = [path / "pages.zst" for path in process_directories(copy)[:2]]
        other = FrameFile.read(second).frames
        file = FrameFile.read(first)
        file.frames[1] = other[1]
        file.write(first)
        return name_of(first)
    damaged(change)


@pytest.mark.parametrize("base", ["tree", "exact"])
def test_flipped_bytes(damaged, sound, base):
    for index, path in enumerate(each_file(sound[base])):
        size = path.stat().st_size
        for at in (40, 64 + 25, size // 2, size - 1):  # of the file's header, a frame's number, its content
            def change(copy, index=index, at=at):
                path = each_file(copy)[index]
                data = bytearray(path.read_bytes())
                data[at] ^= 16
                path.write_bytes(data)
                return name_of(path)
            if at < size:
                damaged(change, base)


def test_file_of_another_recording(damaged, sound):
    for name in ("events.zst", "pages.zst"):
        def change(copy, name=name):
            path = process_directories(copy)[0] / name
            shutil.copy(process_directories(sound["exact"])[0] / name, path)
            return name_of(path)
        damaged(change)


def test_process_of_another_recording(damaged, sound):
    def change(copy):
        other = process_directories(sound["exact"])[0]
        shutil.copytree(other, copy / other.name)
        return other.name
    assert len(damaged(change)["processes"]) == 4


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, None], ids=["empty", "zeros", "gone"])
def test_file_without_content(damaged, sound, content):
    for index in range(8):
        def change(copy, index=index):
            path = each_file(copy)[index]
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            return name_of(path)
        damaged(change)


def test_edited_manifest(damaged):
    def change(copy):
        path = copy / "manifest.json"
        path.write_text(path.read_text().replace('"ended_ns": ', '"ended_ns": 1'))
        return "manifest.json"
    damaged(change)


def test_manifest_of_another_recording(damaged, sound):
    def change(copy):
        shutil.copy(sound["exact"] / "manifest.json", copy)
        return [path.name for path in process_directories(sound["exact"]) + process_directories(copy)]
    assert damaged(change)["processes"] == []


def test_names(whyrss, damaged, sound, tmp_path):
    """A damaged symbols.zst is named once; the report that reads the names anew stores it whole."""
    def cut(copy):
        path = copy / "symbols.zst"
        file = FrameFile.read(path)
        file.frames.pop(0)
        file.write(path)
        return "symbols.zst"
    damaged(cut)
    copy = tmp_path / "names.whyrss"
    shutil.copytree(sound["tree"], copy)
    cut(copy)
    assert not whyrss.report(copy)["recording"]["complete"]
    again = whyrss.report(copy)
    assert again["recording"]["complete"]
    assert report_difference(whyrss.report(sound["tree"]), again) is None


def test_random_mutations(whyrss, sound, tmp_path):
    """recording_mutations.py runs more of them by hand."""
    assert recording_mutations.run(whyrss.program, sound, tmp_path, seed=1, count=60) == []
