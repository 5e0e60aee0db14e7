// What analyzer/report/html/html_data.cc wrote, as arrays.

import { printable } from "./format";
import { Pictures } from "./picture_data";

export interface ReadFigure {
  first: number | null;
  last: number | null;
  peak: number | null;
}

export interface Verdict {
  id: string;
  severity: "ok" | "info" | "warning" | "problem";
  pid: number | null;
  bytes: number;
  headline: string;
  why: string;
  advice: string;
  evidence: { workers?: { pid: number }[] }; // of which no more is used here
}

export interface CgroupReading {
  time_s: number;
  usage?: number | null;
  anon?: number | null;
  shmem?: number | null;
  file?: number | null;
}

// When the processes together had most, as far as tools could have seen it.
export interface AccountedMoment {
  time_s: number;
  rss_sum: number;
  rss_less_shared: number;
  pss_sum: number | null;
  cgroup_usage: number | null;
  cgroup_held: number | null;
  cgroup_file: number | null;
  estimate: boolean;
  left_out: number;
  processes: unknown[];
}

export interface Report {
  recording: {
    path: string;
    host: string;
    command: string[];
    started: string;
    duration_s: number;
    mode: string;
    complete: boolean;
    incomplete_why: string | null;
    exit: { code: number | null; signal: string | null; oom_killed: boolean };
    lost: { events: number; snapshots: number; notes: string[] };
  };
  interval: { from_s: number; to_s: number };
  family: {
    pss: ReadFigure;
    rss_sum: ReadFigure;
    accounting: { at_peak: AccountedMoment | null };
    cgroup: { limit: number | null; usage_peak: number | null; readings?: CgroupReading[] };
  };
  phases: { name: string; from_s: number; to_s: number; pid?: number }[];
  marks: { name: string; at_s: number }[];
  verdicts: Verdict[];
}

export interface ProcessInfo {
  pid: number;
  parent: number | null;
  born: "fork" | "exec";
  born_s: number;
  ended_s: number | null;
  there_until_s: number | null;
  broken_off_s: number | null; // nothing is known of it after that
  teardown_s: number | null;
  unseen_s: number | null;
  end_signal: string;
  command: string[];
  exe: string;
  allocator: string;
  python: string | null;
  traced: boolean;
  high_water: number | null;
  high_water_at_least: boolean;
  write_tracked: boolean;
  copies_estimate: boolean;
  lost_events: number;
  notes: string[];
  asked_s: number[];
  sized_edges_s: number[];
}

export interface Cause {
  slug: string;
  title: string;
  comes_back: string;
}

// Processes that are named in the verdicts of another one.
export interface Alike {
  pid: number;
  pids: number[];
  text: string;
}

export interface Header {
  format: number;
  report: Report;
  heads: { pid: number; text: string }[]; // above the verdicts of a process
  alike: Alike[];
  rest: string; // on the processes of which no verdict speaks
  causes: Cause[];
  oom_kills: { time_s: number; pid: number; line: string }[];
  processes: ProcessInfo[];
  strings: string[];
  bounds: {
    snapshots: number;
    all_snapshots: number;
    sites_left_out: number;
    largest_left_out: number;
    shares_left_out: number;
    copies_merged: number;
    pictures_left_out: number;
    all_polls: number;
    family_pss_thinned: boolean;
  };
  columns: [name: string, type: string, count: number, bytes: number][];
}

// What rows held when: of row i the entries [start[i], start[i + 1]).
export interface Series {
  start: Uint32Array;
  at: Uint32Array; // which snapshot of its process
  bytes: Float64Array; // from then on
  variance: Float32Array;
}

export const SITE_IN_LARGE_BLOCK = 1, SITE_OTHERS = 2, HAS_VARIANCE = 4;
export const SHARE_BY_KERNEL = 1, SHARE_GIVEN_UP = 2;

export class Columns {
  private readonly columns = new Map<string, { type: string; count: number; bytes: Uint8Array }>();

  constructor(table: Header["columns"], bytes: Uint8Array) {
    let at = 0;
    for (const [name, type, count, size] of table) {
      this.columns.set(name, { type, count, bytes: bytes.subarray(at, at + size) });
      at += size;
    }
  }

  whole(name: string): Float64Array {
    const { count, bytes } = this.column(name);
    const values = new Float64Array(count);
    let at = 0;
    for (let i = 0; i < count; i++) {
      let byte = bytes[at++], low = byte & 0x7f, shift = 7;
      while (byte >= 0x80 && shift < 28) {
        byte = bytes[at++];
        low |= (byte & 0x7f) << shift;
        shift += 7;
      }
      let value = low;
      for (let scale = 2 ** 28; byte >= 0x80; scale *= 128) {
        byte = bytes[at++];
        value += (byte & 0x7f) * scale;
      }
      values[i] = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    return values;
  }

  // Of differences between neighbours, counted anew for each of `runs` (their lengths; all in one without them).
  sums(name: string, runs?: ArrayLike<number>): Float64Array {
    const values = this.whole(name);
    let at = 0;
    for (let run = 0; run < (runs?.length ?? 1); run++) {
      const end = runs ? at + runs[run] : values.length;
      for (let sum = 0; at < end; at++) sum = values[at] += sum;
    }
    return values;
  }

  float64(name: string): Float64Array {
    const { bytes } = this.column(name);
    return new Float64Array(bytes.slice().buffer);
  }

  float32(name: string): Float32Array {
    const { bytes } = this.column(name);
    return new Float32Array(bytes.slice().buffer);
  }

  private column(name: string) {
    const found = this.columns.get(name);
    if (!found) throw new Error(`the data has no column ${name}`);
    return found;
  }
}

// Parent and frame of each node; node 0 is the root, which has no frame.
export function callTree(columns: Columns): [Int32Array, Int32Array] {
  const back = columns.whole("node_parent"), frames = columns.sums("node_frame");
  const parents = new Int32Array(back.length + 1), nodeFrames = new Int32Array(back.length + 1).fill(-1);
  for (let i = 0; i < back.length; i++) {
    parents[i + 1] = i + 1 - back[i];
    nodeFrames[i + 1] = frames[i];
  }
  return [parents, nodeFrames];
}

function starts(counts: Float64Array): Uint32Array {
  const start = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) start[i + 1] = start[i] + counts[i];
  return start;
}

function readSeries(columns: Columns, name: string, flags: ArrayLike<number>): Series {
  const counts = columns.whole(`${name}_changes`);
  const start = starts(counts);
  const at = Uint32Array.from(columns.sums(`${name}_at`, counts));
  const bytes = columns.sums(`${name}_bytes`, counts);
  const packed = columns.float32(`${name}_variance`);
  const variance = new Float32Array(bytes.length);
  let next = 0;
  for (let row = 0; row < flags.length; row++) {
    if ((flags[row] & HAS_VARIANCE) === 0) continue;
    for (let i = start[row]; i < start[row + 1]; i++) variance[i] = packed[next++];
  }
  return { start, at, bytes, variance };
}

export class Model {
  readonly report: Report;
  readonly causes: Cause[];
  readonly processes: ProcessInfo[];
  readonly heads: Map<number, string>; // by process
  readonly alike: Map<number, Alike>; // by who is named
  readonly rest: string;
  readonly oomKills: Header["oom_kills"];
  readonly bounds: Header["bounds"];
  readonly strings: string[];

  // Snapshots, those of process i in [snapshotStart[i], snapshotStart[i + 1]).
  readonly snapshotStart: Uint32Array;
  readonly time: Float64Array;
  readonly looked: Float64Array;
  readonly rss: Float64Array;
  readonly snapshotFlags: Float64Array;
  readonly causeBytes: Float64Array; // of each snapshot, one per cause
  readonly exclusiveBytes: Float64Array; // the same, mapped by this process alone

  readonly siteProcess: Int32Array;
  readonly siteCause: Int32Array;
  readonly siteStack: Int32Array;
  readonly siteMapping: Int32Array;
  readonly siteFlags: Int32Array;
  readonly sites: Series;

  readonly shareSite: Int32Array;
  readonly shareStack: Int32Array;
  readonly shareKind: Int32Array;
  readonly shares: Series;

  readonly pollStart: Uint32Array;
  readonly pollTime: Float64Array;
  readonly pollRss: Float64Array;
  readonly pollShared: Float64Array;

  readonly pssStart: Uint32Array;
  readonly pssTime: Float64Array;
  readonly pssState: Float64Array; // twice the bytes, odd: an estimate, -1: not known
  readonly pssRead: Float64Array; // -1: not read then
  readonly familyPssTime: Float64Array;
  readonly familyPssState: Float64Array;

  readonly copyProcess: Int32Array;
  readonly copyTime: Float64Array;
  readonly copyMade: Int32Array;
  readonly copyWritten: Int32Array;
  readonly copyBytes: Float64Array;
  readonly copyVariance: Float64Array;
  readonly copyFlags: Int32Array;

  readonly frameKind: Int32Array;
  readonly frameFunction: Int32Array;
  readonly frameFile: Int32Array;
  readonly frameLine: Int32Array;
  readonly frameModule: Int32Array;
  readonly frameLabel: Int32Array;
  readonly nodeParent: Int32Array;
  readonly nodeFrame: Int32Array; // of node 0: -1
  readonly stackNode: Int32Array;
  readonly stackLine: Int32Array; // frame + 1; 0: nothing is known

  readonly pictures: Pictures;

  readonly processOfPid = new Map<number, number>();

  constructor(header: Header, bytes: Uint8Array) {
    this.report = header.report;
    this.causes = header.causes;
    this.processes = header.processes;
    this.heads = new Map(header.heads.map(({ pid, text }) => [pid, text]));
    this.alike = new Map(header.alike.map((each) => [each.pid, each]));
    this.rest = header.rest;
    this.oomKills = header.oom_kills;
    this.bounds = header.bounds;
    this.strings = header.strings;
    const columns = new Columns(header.columns, bytes);

    const snapshots = columns.whole("snapshot_count");
    this.snapshotStart = starts(snapshots);
    this.time = columns.float64("snapshot_time");
    this.looked = columns.float64("snapshot_looked");
    this.rss = columns.sums("snapshot_rss", snapshots);
    this.snapshotFlags = columns.whole("snapshot_flags");

    this.siteProcess = Int32Array.from(columns.sums("site_process"));
    this.siteCause = Int32Array.from(columns.whole("site_cause"));
    this.siteStack = Int32Array.from(columns.sums("site_stack"));
    this.siteMapping = Int32Array.from(columns.whole("site_mapping"));
    this.siteFlags = Int32Array.from(columns.whole("site_flags"));
    this.sites = readSeries(columns, "site", this.siteFlags);
    this.causeBytes = this.sumSites();
    this.exclusiveBytes = this.readExclusive(columns);

    this.shareSite = Int32Array.from(columns.sums("share_site"));
    this.shareStack = Int32Array.from(columns.sums("share_stack"));
    this.shareKind = Int32Array.from(columns.whole("share_kind"));
    this.shares = readSeries(columns, "share", columns.whole("share_flags"));

    const polls = columns.whole("poll_count");
    this.pollStart = starts(polls);
    this.pollTime = columns.sums("poll_time", polls).map((us) => us / 1e6);
    this.pollRss = columns.sums("poll_rss", polls);
    this.pollShared = columns.sums("poll_shared", polls);

    const pss = columns.whole("pss_count");
    this.pssStart = starts(pss);
    this.pssTime = columns.float64("pss_time");
    this.pssState = columns.sums("pss_state", pss);
    this.pssRead = columns.sums("pss_read", pss);
    this.familyPssTime = columns.float64("family_pss_time");
    this.familyPssState = columns.sums("family_pss_state");

    this.copyProcess = Int32Array.from(columns.sums("copy_process"));
    this.copyTime = columns.float64("copy_time");
    this.copyMade = Int32Array.from(columns.sums("copy_made"));
    this.copyWritten = Int32Array.from(columns.sums("copy_written"));
    this.copyBytes = columns.whole("copy_bytes");
    this.copyVariance = columns.float64("copy_variance");
    this.copyFlags = Int32Array.from(columns.whole("copy_flags"));

    this.frameKind = Int32Array.from(columns.whole("frame_kind"));
    this.frameFunction = Int32Array.from(columns.whole("frame_function"));
    this.frameFile = Int32Array.from(columns.whole("frame_file"));
    this.frameLine = Int32Array.from(columns.whole("frame_line"));
    this.frameModule = Int32Array.from(columns.whole("frame_module"));
    this.frameLabel = Int32Array.from(columns.whole("frame_label"));
    [this.nodeParent, this.nodeFrame] = callTree(columns);
    this.stackNode = Int32Array.from(columns.sums("stack_node"));
    this.stackLine = Int32Array.from(columns.whole("stack_line"));
    this.pictures = new Pictures(columns);
    this.processes.forEach((process, i) => { // the first of a number that was used again
      if (!this.processOfPid.has(process.pid)) this.processOfPid.set(process.pid, i);
    });
  }

  get causeCount(): number {
    return this.causes.length;
  }

  frameText(frame: number): string {
    return this.strings[this.frameLabel[frame]] || "(not known)";
  }

  stackText(stack: number): string {
    const line = this.stackLine[stack];
    return line > 0 ? this.frameText(line - 1) : "";
  }

  // Frames of a stack, innermost first.
  stackFrames(stack: number): number[] {
    const frames: number[] = [];
    for (let node = this.stackNode[stack]; node > 0; node = this.nodeParent[node]) frames.push(this.nodeFrame[node]);
    return frames;
  }

  private sumSites(): Float64Array {
    const { start, at, bytes } = this.sites;
    const count = this.causes.length;
    const sums = new Float64Array(this.time.length * count);
    for (let row = 0; row < this.siteProcess.length; row++) {
      const first = this.snapshotStart[this.siteProcess[row]], cause = this.siteCause[row];
      for (let i = start[row], before = 0; i < start[row + 1]; i++) {
        sums[(first + at[i]) * count + cause] += bytes[i] - before;
        before = bytes[i];
      }
    }
    this.addUp(sums);
    return sums;
  }

  private readExclusive(columns: Columns): Float64Array {
    const process = columns.sums("exclusive_process"), cause = columns.whole("exclusive_cause");
    const counts = columns.whole("exclusive_changes"), start = starts(counts);
    const at = columns.sums("exclusive_at", counts), bytes = columns.whole("exclusive_bytes");
    const sums = new Float64Array(this.time.length * this.causes.length);
    for (let row = 0; row < process.length; row++) {
      const first = this.snapshotStart[process[row]];
      for (let i = start[row]; i < start[row + 1]; i++)
        sums[(first + at[i]) * this.causes.length + cause[row]] += bytes[i];
    }
    this.addUp(sums);
    return sums;
  }

  // Changes into what there was, of each process.
  private addUp(changes: Float64Array): void {
    const count = this.causes.length;
    for (let process = 0; process + 1 < this.snapshotStart.length; process++) {
      const end = this.snapshotStart[process + 1] * count;
      for (let i = (this.snapshotStart[process] + 1) * count; i < end; i++) changes[i] += changes[i - count];
    }
  }
}

// Every string of the header, made harmless to look at.
function reviver(_key: string, value: unknown): unknown {
  return typeof value === "string" ? printable(value) : value;
}

function unpackBase64(base64: string): Uint8Array<ArrayBuffer> {
  const quick = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (quick) return quick.call(Uint8Array, base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// What C++ packed: a header, and the bytes behind it.
export async function unpacked(base64: string): Promise<{ header: { format: number; kind?: string }; bytes: Uint8Array }> {
  const packed = unpackBase64(base64.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const newline = bytes.indexOf(10);
  const decoder = new TextDecoder();
  const begin = newline + 1, end = begin + Number(decoder.decode(bytes.subarray(0, newline)));
  const header = JSON.parse(decoder.decode(bytes.subarray(begin, end)), reviver);
  if (header.format !== 1) throw new Error(`data of format ${header.format}: this page reads 1`);
  return { header, bytes: bytes.subarray(end) };
}
