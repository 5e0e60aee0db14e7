// The page: what is chosen (process, interval, cause, view), and the sections that show it.

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { type Account, accountOf, type By, type CauseFigures, copiedBytes, type Metric, type Parts, partsOf, TREE } from "./account";
import { AddressSpace } from "./address_space";
import type { Theme } from "./colours";
import { AtCursor } from "./cursor";
import { type Model, SHARE_GIVEN_UP } from "./data";
import { countText, growthText, secondsText, sizeText } from "./format";
import { Icicle } from "./icicle";
import type { Selection } from "./interval";
import { lastAt } from "./interval";
import { Lines, Mappings } from "./lines";
import { Card, Choice, Growth, Search, Size, Swatch, ThemeButton } from "./parts";
import { commandText, Processes, treeOrder } from "./processes";
import { causeSkin } from "./skin";
import { useTheme } from "./theme";
import { axisEnd, brokenOff, eventsAt, eventsOf, stepSeconds, teardownOf, TimelineChart } from "./timeline";
import { type Timeline, timelineOf } from "./timeline_data";
import { isHit, Tree } from "./tree";
import { type Target, Verdicts } from "./verdicts";

interface State {
  scope: number;
  selection: Selection;
  cause: number;
}

// The state in the address, so that links and the browser's back button work.
function written(model: Model, { scope, selection, cause }: State): string {
  const words = [
    scope === TREE ? "" : `process=${model.processes[scope].pid}`,
    cause < 0 ? "" : `cause=${model.causes[cause].slug}`,
    selection.kind === "range" ? `from=${selection.from}&to=${selection.to}` : "",
    selection.kind === "phase" ? `phase=${selection.phase}` : "",
  ].filter(Boolean);
  return `#${words.join("&") || "all"}`;
}

function readState(model: Model, hash: string): State {
  const words = new URLSearchParams(hash.slice(1));
  const number = (name: string) => (words.has(name) && words.get(name) !== "" ? Number(words.get(name)) : Number.NaN);
  const scope = model.processOfPid.get(number("process")) ?? TREE;
  const cause = model.causes.findIndex((each) => each.slug === words.get("cause"));
  let selection: Selection = { kind: "whole" };
  if (number("from") < number("to")) selection = { kind: "range", from: number("from"), to: number("to") };
  if (model.report.phases[number("phase")]) selection = { kind: "phase", phase: number("phase") };
  return { scope: model.processes.length === 1 ? 0 : scope, selection, cause };
}

export function App({ model }: { model: Model }) {
  const [theme, toggleTheme] = useTheme();
  const [state, setState] = useState<State>(() => readState(model, location.hash));
  const [cursor, setCursor] = useState<number | null>(null);
  useEffect(() => {
    const follow = () => setState(readState(model, location.hash));
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, [model]);
  const change = useCallback((next: Partial<State>) => setState((old) => {
    const state = { ...old, ...next };
    history.replaceState(null, "", written(model, state));
    return state;
  }), [model]);

  const timeline = useMemo(() => timelineOf(model, state.scope), [model, state.scope]);
  const account = useMemo(() => accountOf(model, state.scope, state.selection, timeline), [model, state, timeline]);
  const held = useMemo(() => partsOf(model, account, "held", state.cause), [model, account, state.cause]);
  // The cursor moves often, and nothing of this with it.
  const below = useMemo(() => (
    <>
      <WhereCard model={model} theme={theme} account={account} held={held} state={state} onChange={change} />
      {model.pictures.list.length > 0 && (
        <Card id="address-space" title="Address space" aside={<p class="note">a row is a mapping, a cell a page or some neighbouring ones</p>}>
          <AddressSpace model={model} scope={state.scope} from={account.from} to={account.to} theme={theme} />
        </Card>
      )}
      <div class="pair">
        <Card id="processes" title={model.processes.length === 1 ? "Process" : `${model.processes.length} processes`}>
          <Processes model={model} scope={state.scope} selection={state.selection} theme={theme} onScope={(scope) => change({ scope })} />
        </Card>
        <Card id="mappings" title="Mappings">
          <Mappings model={model} parts={held} theme={theme} />
        </Card>
      </div>
    </>
  ), [model, theme, account, held, state, change]);
  const go = (target: Target) => {
    change(target);
    document.getElementById("timeline")?.scrollIntoView({ behavior: "smooth" });
  };
  return (
    <>
      <Header model={model} theme={theme} onTheme={toggleTheme} />
      <main>
        <Verdicts model={model} onGo={go} linkTo={(target) => written(model, { ...state, ...target })} />
        <ScopeBar model={model} state={state} account={account} onChange={change} />
        <TimelineCard model={model} theme={theme} state={state} timeline={timeline} account={account} cursor={cursor}
          onCursor={setCursor} onChange={change} />
        {below}
        <Card id="other-tools" title="What other tools show">
          <AtCursor model={model} account={account} cursor={cursor} />
        </Card>
      </main>
      <Footer model={model} />
    </>
  );
}

function Header({ model, theme, onTheme }: { model: Model; theme: Theme; onTheme: () => void }) {
  const { recording } = model.report;
  const { code, signal, oom_killed } = recording.exit;
  const end = oom_killed ? "killed for lack of memory" : signal ? `ended by ${signal}` : code !== null ? `exit ${code}` : "end not seen";
  return (
    <header>
      <div class="title">
        <p class="brand">whyrss</p>
        <h1 class="code" title={recording.command.join(" ")}>{recording.command.join(" ") || recording.path}</h1>
        <ThemeButton theme={theme} onTheme={onTheme} />
      </div>
      <p class="facts">
        <span>{secondsText(recording.duration_s)}</span>
        <span class={signal || oom_killed || (code ?? 0) !== 0 ? "bad" : ""}>{end}</span>
        <span>{recording.host}</span>
        <span>{recording.started.slice(0, 19).replace("T", " ")} UTC</span>
        <span>{recording.mode}</span>
        {!recording.complete && <span class="bad">incomplete: {recording.incomplete_why}</span>}
        {recording.lost.events > 0 && <span class="bad" data-testid="lost">{`${countText(recording.lost.events, "event")} lost: lines may be missing`}</span>}
      </p>
    </header>
  );
}

const LISTED = 2000; // the table has all

function ScopeOptions({ model, scope }: { model: Model; scope: number }) {
  const places = useMemo(() => treeOrder(model), [model]);
  const option = (process: number) => (
    <option key={process} value={String(process)}>{`${model.processes[process].pid}  ${commandText(model, process).slice(0, 60)}`}</option>
  );
  const listed = new Set<number>();
  const options = places.map(({ process, fold }) => {
    const processes = (fold?.processes ?? [process]).slice(0, Math.max(LISTED - listed.size, 0));
    for (const each of processes) listed.add(each);
    return fold ? <optgroup key={`fold ${fold.key}`} label={`${fold.processes.length} more like it`}>{processes.map(option)}</optgroup> : processes.map(option);
  });
  return <>{options}{scope !== TREE && !listed.has(scope) && option(scope)}</>;
}

function ScopeBar({ model, state, account, onChange }: {
  model: Model; state: State; account: Account; onChange: (next: Partial<State>) => void;
}) {
  const { phases } = model.report;
  const names = useMemo(() => numberedNames(phases), [phases]);
  const whole = state.selection.kind === "whole";
  return (
    <nav class="scope" aria-label="What is shown">
      {model.processes.length > 1 && (
        <label>
          <span>process</span>
          <select value={String(state.scope)} data-testid="scope"
            onChange={(event) => onChange({ scope: Number((event.target as HTMLSelectElement).value) })}>
            <option value={String(TREE)}>all {model.processes.length}</option>
            <ScopeOptions model={model} scope={state.scope} />
          </select>
        </label>
      )}
      {phases.length > 0 && (
        <label>
          <span>phase</span>
          <select data-testid="phase" value={state.selection.kind === "phase" ? String(state.selection.phase) : ""}
            onChange={(event) => {
              const { value } = event.target as HTMLSelectElement;
              onChange({ selection: value === "" ? { kind: "whole" } : { kind: "phase", phase: Number(value) } });
            }}>
            <option value="">all</option>
            {names.slice(0, 2000).map((name, i) => <option key={i} value={String(i)}>{name}</option>)}
          </select>
        </label>
      )}
      <p class="interval" data-testid="interval" data-from={account.from} data-to={account.to}>
        <span class="label">{whole ? "whole recording" : "interval"}</span>{" "}
        {secondsText(account.from)} – {secondsText(account.to)}
        {!whole && <button type="button" onClick={() => onChange({ selection: { kind: "whole" } })}>whole recording</button>}
      </p>
      {state.cause >= 0 && (
        <p class="interval">
          <span class="label">cause</span> {model.causes[state.cause].title}
          <button type="button" onClick={() => onChange({ cause: -1 })}>all causes</button>
        </p>
      )}
    </nav>
  );
}

// "train#2" where several have a name, as `report --from` takes it.
function numberedNames(phases: { name: string }[]): string[] {
  const counts = new Map<string, number>(), seen = new Map<string, number>();
  for (const { name } of phases) counts.set(name, (counts.get(name) ?? 0) + 1);
  return phases.map(({ name }) => {
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return counts.get(name) === 1 ? name : `${name}#${seen.get(name)}`;
  });
}

// One below the other where they overlap, as nested phases do.
function lanesOf(phases: { from_s: number; to_s: number }[]): number[] {
  const ends: number[] = []; // of the last phase of each lane
  return phases.map((phase) => {
    const free = ends.findIndex((end) => end <= phase.from_s);
    const lane = free >= 0 ? free : ends.length;
    ends[lane] = phase.to_s;
    return lane;
  });
}

function TimelineCard({ model, theme, state, timeline, account, cursor, onCursor, onChange }: {
  model: Model; theme: Theme; state: State; timeline: Timeline; account: Account; cursor: number | null;
  onCursor: (time: number | null) => void; onChange: (next: Partial<State>) => void;
}) {
  const { phases } = model.report;
  const lanes = useMemo(() => lanesOf(phases), [phases]);
  const end = axisEnd(model);
  return (
    <Card id="timeline" title="Memory over time, by cause" aside={<p class="note">drag to choose an interval, or Shift and the arrow keys</p>}>
      <Totals model={model} account={account} />
      <div class="timeline-and-causes">
        <div class="timeline-box">
          {phases.length > 0 && phases.length <= 60 && (
            <div class="phases" data-testid="phases" style={{ height: `${(Math.max(...lanes) + 1) * 24}px` }}>
              {phases.map((phase, i) => (
                <button key={i} type="button" title={`${phase.name}: ${secondsText(phase.from_s)} to ${secondsText(phase.to_s)}`}
                  aria-pressed={state.selection.kind === "phase" && state.selection.phase === i}
                  style={{ top: `${lanes[i] * 24}px`, left: `${(phase.from_s / end) * 100}%`, width: `${(Math.max(phase.to_s - phase.from_s, 0) / end) * 100}%` }}
                  onClick={() => onChange({ selection: { kind: "phase", phase: i } })}>{phase.name}</button>
              ))}
            </div>
          )}
          {timeline.time.length > 0
            ? <TimelineChart model={model} timeline={timeline} account={account} theme={theme} cause={state.cause} cursor={cursor}
                onSelect={(selection) => onChange({ selection })} onCursor={onCursor} />
            : <p class="empty" data-testid="timeline-empty">No snapshot of the memory was made: it is not known what it was.</p>}
          <Legend model={model} scope={state.scope} cursor={cursor} timeline={timeline} />
        </div>
        <Causes model={model} theme={theme} account={account} timeline={timeline} cursor={cursor} chosen={state.cause}
          onChoose={(cause) => onChange({ cause: cause === state.cause ? -1 : cause })} />
      </div>
    </Card>
  );
}

function Totals({ model, account }: { model: Model; account: Account }) {
  const tree = account.scope === TREE;
  const read = tree ? model.time.length > 0 : model.snapshotStart[account.scope + 1] > model.snapshotStart[account.scope];
  const known = (bytes: number) => (read ? bytes : null);
  return (
    <dl class="totals" data-testid="totals">
      <div><dt>{tree ? "RSS summed" : "RSS"}</dt>
        <dd><Size bytes={known(account.rss.first)} name="rss-first" /> → <Size bytes={known(account.rss.last)} name="rss-last" /></dd></div>
      <div><dt>peak{account.peakTime !== null && ` at ${secondsText(account.peakTime)}`}</dt><dd><Size bytes={known(account.rss.peak)} name="rss-peak" /></dd></div>
      <div><dt>PSS{tree ? ": every page once" : ""}</dt>
        <dd><Size bytes={read ? account.pss.first.bytes : null} estimate={account.pss.first.estimate} name="pss-first" /> → <Size bytes={read ? account.pss.last.bytes : null} estimate={account.pss.last.estimate} name="pss-last" /></dd></div>
      {account.uss && <div><dt>USS</dt><dd><Size bytes={known(account.uss.first)} name="uss-first" /> → <Size bytes={known(account.uss.last)} name="uss-last" /></dd></div>}
      <div><dt>{tree ? "growth of what is there" : "growth"}</dt><dd>{read ? <Growth bytes={account.growth} name="growth" /> : <Size bytes={null} name="growth" />}</dd></div>
    </dl>
  );
}

function Legend({ model, scope, cursor, timeline }: { model: Model; scope: number; cursor: number | null; timeline: Timeline }) {
  const teardown = useMemo(() => teardownOf(model, scope), [model, scope]);
  const step = useMemo(() => stepSeconds(model, scope, timeline), [model, scope, timeline]);
  const events = useMemo(() => eventsOf(model, scope), [model, scope]);
  const kinds = new Set(events.map((event) => event.kind));
  const near = cursor === null ? "" : eventsAt(events, cursor, model.report.interval.to_s);
  return (
    <>
    <p class="legend" aria-hidden="true">
      <span><i class="key line-rss" />RSS, polled{scope === TREE && ", summed"}</span>
      <span><i class="key line-pss" />PSS</span>
      {(kinds.has("fork") || kinds.has("start")) && <span><i class="key up" />fork or start</span>}
      {kinds.has("exit") && <span><i class="key down" />end</span>}
      {kinds.has("kill") && <span><i class="key kill" />kill</span>}
      {kinds.has("mark") && <span><i class="key mark" />mark</span>}
      {step > 0 && <span>{scope === TREE ? "areas and lines" : "areas and PSS"}: the most in each {secondsText(step)}</span>}
      <span><i class="key stripes" />estimate, or not known</span>
      {teardown && teardown.to - teardown.from > axisEnd(model) / 500 && <span title="what is freed while it ends is in no figure of the whole recording"><i class="key shade" />teardown, left out</span>}
      {brokenOff(model, scope) !== null && <span><i class="key shade" />not recorded</span>}
    </p>
    <p class="happened" aria-live="polite" data-testid="events-at">{near}</p>
    </>
  );
}

// A cause that is nowhere in the interval may be at the cursor.
function withThoseAt(account: Account, timeline: Timeline, at: number): CauseFigures[] {
  const listed = new Set(account.causes.map((figures) => figures.cause));
  const more = timeline.causes.flatMap((bytes, cause) =>
    at >= 0 && bytes[at] > 0 && !listed.has(cause) ? [{ cause, first: 0, last: 0, peak: 0, atPeak: 0, uss: 0 }] : [],
  );
  return [...account.causes, ...more];
}

function Causes({ model, theme, account, timeline, cursor, chosen, onChoose }: {
  model: Model; theme: Theme; account: Account; timeline: Timeline; cursor: number | null; chosen: number; onChoose: (cause: number) => void;
}) {
  const at = cursor === null ? -1 : lastAt(timeline.time, 0, timeline.time.length, cursor);
  const now = cursor === null ? account.causes : withThoseAt(account, timeline, at);
  return (
    <div class="causes" data-testid="causes">
      <table>
        <caption class="unseen">Memory by cause in the interval</caption>
        <thead>
          <tr>
            <th scope="col">cause</th>
            <th scope="col" class="number">growth</th>
            <th scope="col" class="number" title="at the end of the interval">end</th>
            <th scope="col" class="number lesser" title="the most in the interval">most</th>
            <th scope="col" class="number lesser" title={cursor === null ? "when there was most of all" : "where the pointer is in the timeline"}>
              {cursor === null ? "at peak" : `at ${secondsText(cursor)}`}
            </th>
          </tr>
        </thead>
        <tbody>
          {now.map((figures) => {
            const { slug, title, comes_back } = model.causes[figures.cause];
            return (
              <tr key={slug} data-cause={slug} class={chosen === figures.cause ? "chosen" : ""}>
                <th scope="row">
                  <button type="button" class="link" aria-pressed={chosen === figures.cause} onClick={() => onChoose(figures.cause)}
                    title={`${title}: comes back when ${comes_back}`}>
                    <Swatch model={model} cause={figures.cause} theme={theme} />{title}
                  </button>
                </th>
                <td class="number"><Growth bytes={figures.last - figures.first} name="growth" /></td>
                <td class="number"><Size bytes={figures.last} name="last" /></td>
                <td class="number lesser"><Size bytes={figures.peak} name="peak" /></td>
                <td class="number lesser at-moment">
                  {cursor === null ? <Size bytes={figures.atPeak} name="at-peak" /> : <Size bytes={at < 0 ? 0 : timeline.causes[figures.cause][at]} name="at-cursor" />}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function WhereCard({ model, theme, account, held, state, onChange }: {
  model: Model; theme: Theme; account: Account; held: Parts; state: State; onChange: (next: Partial<State>) => void;
}) {
  const hasPython = useMemo(() => model.frameKind.some((kind) => kind === 0), [model]);
  const hasCopies = model.copyTime.length > 0, hasTouches = model.shareKind.some((kind) => kind !== SHARE_GIVEN_UP);
  const hasAdvice = model.shareKind.some((kind) => kind === SHARE_GIVEN_UP);
  const [by, setBy] = useState<By>("held");
  const [metric, setMetric] = useState<Metric>(state.scope === TREE ? "peak" : "growth");
  const [frames, setFrames] = useState<"python" | "mixed">(hasPython ? "python" : "mixed");
  const [order, setOrder] = useState<"callers" | "inverted">("callers");
  const [search, setSearch] = useState("");
  const [zoom, setZoom] = useState(0);
  const isTree = state.scope === TREE;
  const shown: Metric = by === "copied" ? "growth" : metric;
  useEffect(() => setMetric(isTree ? "peak" : "growth"), [isTree]); // of a tree most has ended at its end
  const parts = useMemo(() => (by === "held" ? held : partsOf(model, account, by, state.cause)), [model, account, by, held]);
  const tree = useMemo(() => {
    setZoom(0);
    return new Tree(model, parts, { metric: shown, python: frames === "python", inverted: order === "inverted" });
  }, [model, parts, shown, frames, order]);
  const skin = useMemo(() => causeSkin(model, tree, theme), [model, tree, theme]);
  const matched = useMemo(
    () => (search ? tree.matched((frame, cause) => isHit(model, frame, cause, search.toLowerCase())) : null),
    [model, tree, search],
  );
  const what = by === "copied" ? "copied memory" : { growth: "growth", shrinkage: "shrinkage", resident: "resident memory", peak: "memory at the peak" }[metric];
  const bys: [By, string][] = [["held", "held by"]];
  if (hasTouches) bys.push(["touched", "touched by"]);
  if (hasAdvice) bys.push(["given up", "given up by"]);
  if (hasCopies) bys.push(["copied", "copied by"]);
  return (
    <Card id="where" title="Which lines" aside={
      <p class="note" data-testid="where-total">
        {by === "copied"
          ? <><Size bytes={copiedBytes(model, account)} name="copied" /> copied</>
          : metric === "growth" || metric === "shrinkage"
            ? <>{tree.shrank > 0 && `${growthText(tree.grew)} and ${growthText(-tree.shrank)}: `}<Growth bytes={tree.grew - tree.shrank} name="net" /></>
            : <Size bytes={tree.grew} name="net" />}
      </p>
    }>
      <div class="controls">
        {bys.length > 1 && <Choice label="by whom" value={by} options={bys} onChange={setBy} />}
        {by !== "copied" && <Choice label="which figure" value={metric} onChange={setMetric}
          options={[["growth", "growth"], ["shrinkage", "shrinkage"], ["resident", "resident"], ["peak", "at peak"]]} />}
        {hasPython && <Choice label="frames" value={frames} onChange={setFrames} options={[["python", "Python only"], ["mixed", "with native"]]} />}
        <Choice label="order" value={order} onChange={setOrder} options={[["callers", "callers first"], ["inverted", "lines first"]]} />
        <Search value={search} onChange={setSearch} />
        {matched !== null && <p class="note" aria-live="polite" data-testid="matched">{sizeText(matched)} of {sizeText(tree.total)}</p>}
        {state.cause >= 0 && <button type="button" onClick={() => onChange({ cause: -1 })}>all causes</button>}
      </div>
      <Icicle tree={tree} skin={skin} theme={theme} search={search} what={what} zoom={Math.min(zoom, tree.size - 1)} onZoom={setZoom} />
      <Lines model={model} parts={parts} theme={theme} metric={shown} search={search} copied={by === "copied"} />
    </Card>
  );
}

function Footer({ model }: { model: Model }) {
  const { recording } = model.report, { bounds } = model;
  const notes = [...recording.lost.notes];
  for (const process of model.processes.slice(0, 200)) for (const note of process.notes) notes.push(`${process.pid}: ${note}`);
  const bounded: string[] = [];
  if (bounds.all_snapshots > bounds.snapshots) bounded.push(`${bounds.snapshots.toLocaleString("en")} of ${bounds.all_snapshots.toLocaleString("en")} snapshots are in this file; the first, the last and the highest of each process are among them.`);
  if (bounds.sites_left_out > 0) bounded.push(`${bounds.sites_left_out.toLocaleString("en")} places in the program that never held more than ${sizeText(bounds.largest_left_out)} are summed up per process and cause as “smaller sites”; no total changes.`);
  if (bounds.shares_left_out > 0) bounded.push(`${bounds.shares_left_out.toLocaleString("en")} small parts of “touched by” count as not known.`);
  if (bounds.pictures_left_out > 0) bounded.push(`${bounds.pictures_left_out.toLocaleString("en")} pictures of address spaces are left out.`);
  if (bounds.copies_merged > 0) bounded.push(`${bounds.copies_merged.toLocaleString("en")} small copies are summed without their lines.`);
  return (
    <footer>
      <p data-testid="bounds">{bounded.length > 0 ? bounded.join(" ") : "All that was recorded is in this file."} The same figures: <span class="code">whyrss report {recording.path} --format json</span></p>
      {recording.lost.events + recording.lost.snapshots > 0 && <p>Lost: {countText(recording.lost.events, "event")}, {countText(recording.lost.snapshots, "snapshot")}.</p>}
      {notes.length > 0 && (
        <details><summary>{countText(notes.length, "note")} on what could not be told</summary>
          <ul>{notes.map((note, i) => <li key={i}>{note}</li>)}</ul>
        </details>
      )}
      <p>Drawn with uPlot and Preact (MIT licence; the texts stand at the end of this file).</p>
    </footer>
  );
}
