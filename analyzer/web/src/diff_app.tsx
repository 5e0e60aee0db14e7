// The page of `whyrss diff`: both sides, causes, an icicle of what differs, lines.

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { changeColour, type Theme } from "./colours";
import { type DiffFigure, type DiffLine, type DiffModel, type DiffSide, movedText, PYTHON, type State, STATES } from "./diff_data";
import { diffSkin, DiffTree, type Width } from "./diff_tree";
import { growthText, secondsText, sizeText } from "./format";
import { Icicle } from "./icicle";
import { type Column, List } from "./list";
import { Card, Choice, Growth, Search, Size, Swatch, ThemeButton } from "./parts";
import { useTheme } from "./theme";

const VALUES = { growth: "growth of RSS", resident: "RSS at the end", at_peak: "RSS at the peak of each process" };

// The chosen cause, which the address holds; -1: all.
function useCause(model: DiffModel): [number, (cause: number) => void] {
  const read = () => model.causeOfSlug.get(new URLSearchParams(location.hash.slice(1)).get("cause") ?? "") ?? -1;
  const [cause, setCause] = useState(read);
  useEffect(() => {
    const follow = () => setCause(read());
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, [model]);
  return [cause, (next) => {
    history.replaceState(null, "", next < 0 ? "#all" : `#cause=${model.causes[next].slug}`);
    setCause(next);
  }];
}

export function DiffApp({ model }: { model: DiffModel }) {
  const [theme, toggleTheme] = useTheme();
  const [cause, setCause] = useCause(model);
  const { diff, header } = model;
  return (
    <div class="diff">
      <header>
        <div class="title">
          <p class="brand">whyrss diff</p>
          <h1>What changed in memory</h1>
          <ThemeButton theme={theme} onTheme={toggleTheme} />
        </div>
      </header>
      <main>
        <div class="sides">
          <Side letter="A" side={diff.a} part={header.parts[0]} />
          <Side letter="B" side={diff.b} part={header.parts[1]} />
        </div>
        <Card id="totals" title="In all">
          <Totals model={model} />
          {header.doubts.length > 0 && <ul class="doubts" data-testid="doubts">{header.doubts.map((doubt, i) => <li key={i}>{doubt}</li>)}</ul>}
        </Card>
        {diff.a.read && diff.b.read && ( // else there is nothing to compare
          <>
            <Card id="by-cause" title="By cause" aside={<p class="note">{VALUES[diff.value]}</p>}>
              <Causes model={model} theme={theme} chosen={cause} onChoose={(next) => setCause(next === cause ? -1 : next)} />
            </Card>
            <Where model={model} theme={theme} cause={cause} onCause={setCause} />
          </>
        )}
      </main>
      <Footer model={model} />
    </div>
  );
}

function Side({ letter, side, part }: { letter: string; side: DiffSide; part: string }) {
  const { command, path, interval, pids, started, host, mode, complete, lost_events } = side;
  const text = command.join(" ") || path;
  return (
    <section class="card side" aria-labelledby={`side-${letter}`} data-testid={`side-${letter}`}>
      <h2 id={`side-${letter}`} title={text}><span class="letter">{letter}</span> <span class="code">{text}</span></h2>
      <p class="facts">
        <span class="code">{path}</span>
        {part && <span>{part}</span>}
        <span>{secondsText(interval.to_s - interval.from_s)}</span>
        <span>{pids.length === 1 ? `process ${pids[0]}` : `${pids.length} processes`}</span>
        <span>{started.slice(0, 19).replace("T", " ")} UTC</span>
        <span>{host}</span>
        <span>{mode}</span>
        {!complete && <span class="bad">incomplete</span>}
        {lost_events > 0 && <span class="bad">{lost_events} events lost</span>}
      </p>
    </section>
  );
}

const MOST_PERCENT = 1000; // above it says nothing

function Percent({ percent }: { percent: number | null }) {
  if (percent !== null && Math.abs(percent) > MOST_PERCENT) return null;
  const digits = Math.abs(percent ?? 0).toFixed(0), sign = digits === "0" ? "" : (percent ?? 0) > 0 ? "+" : "−";
  return <span class="note">{percent === null ? "" : `${sign}${digits} %`}</span>;
}

function Totals({ model }: { model: DiffModel }) {
  const { value, rss, peak_rss, peak_pss, a, b } = model.diff;
  const several = Math.max(a.pids.length, b.pids.length) > 1;
  const name = several ? `${VALUES[value]}, summed over ${a.process_count} and ${b.process_count} processes` : VALUES[value];
  const all: [string, string, DiffFigure | null][] = [
    ["rss", name, rss],
    ["peak-rss", several ? "peak RSS of all together" : "peak RSS", peak_rss],
    ["peak-pss", several ? "peak PSS: every page once" : "peak PSS", peak_pss],
  ];
  const isEstimate = (key: string) => key === "peak-pss" && model.header.pss_estimate;
  return (
    <dl class="totals" data-testid="totals">
      {all.map(([key, title, figure]) => (
        <div key={key}>
          <dt>{title}</dt>
          {figure
            ? <dd><Size bytes={a.read ? figure.a : null} estimate={isEstimate(key)} name={`${key}-a`} /> → <Size bytes={b.read ? figure.b : null} estimate={isEstimate(key)} name={`${key}-b`} />{" "}
                {a.read && b.read && <span class="by"><Growth bytes={figure.change} name={`${key}-change`} /> <Percent percent={figure.percent} /></span>}</dd>
            : <dd><Size bytes={null} name={key} /></dd>}
        </div>
      ))}
    </dl>
  );
}

// Left of the middle what B has less, right of it what it has more.
function Bar({ change, most, theme }: { change: number; most: number; theme: Theme }) {
  const width = (Math.abs(change) / most) * 50;
  return (
    <span class="bar" aria-hidden="true">
      <i style={{ left: `${change < 0 ? 50 - width : 50}%`, width: `${width}%`, background: changeColour(Math.sign(change), theme) }} />
    </span>
  );
}

function StateBadge({ state }: { state: State }) {
  return <span class={`badge ${state}`} data-state={state}>{state}</span>;
}

function ErrorOf({ figure }: { figure: DiffFigure }) {
  return figure.standard_error > 0 ? <Size bytes={figure.standard_error} name="standard_error" /> : null;
}

function Causes({ model, theme, chosen, onChoose }: { model: DiffModel; theme: Theme; chosen: number; onChoose: (cause: number) => void }) {
  const { causes, rss } = model.diff;
  const most = causes.reduce((sum, figure) => Math.max(sum, Math.abs(figure.change)), 1);
  const row = (figure: DiffFigure, head: ComponentChildren, key: string, on: boolean) => (
    <tr key={key} data-cause={key} class={on ? "chosen" : ""}>
      <th scope="row">{head}</th>
      <td class="number"><Size bytes={figure.a} name="a" /></td>
      <td class="number"><Size bytes={figure.b} name="b" /></td>
      <td class="number"><Growth bytes={figure.change} name="change" noise={figure.state === "same"} /></td>
      <td class="number lesser"><ErrorOf figure={figure} /></td>
      <td class="number lesser"><Percent percent={figure.percent} /></td>
      <td class="lesser"><Bar change={key === "= RSS" ? 0 : figure.change} most={most} theme={theme} /></td>
      <td class="lesser"><StateBadge state={figure.state} /></td>
    </tr>
  );
  return (
    <div class="causes" data-testid="causes" tabIndex={0} role="region" aria-label="Table of causes">
      <table>
        <caption class="unseen">Memory by cause in A and B</caption>
        <thead>
          <tr>
            <th scope="col">cause</th><th scope="col" class="number">A</th><th scope="col" class="number">B</th>
            <th scope="col" class="number">difference</th>
            <th scope="col" class="number lesser" title="standard error of the difference, where it is an estimate">±</th>
            <th scope="col" class="number lesser" title="of A">%</th>
            <th scope="col" class="lesser"><span class="unseen">bar of the difference</span></th>
            <th scope="col" class="lesser">state</th>
          </tr>
        </thead>
        <tbody>
          {causes.map((figure) => {
            const cause = model.causeOfSlug.get(figure.cause) ?? 0, { title, comes_back } = model.causes[cause];
            return row(figure, (
              <button type="button" class="link" aria-pressed={chosen === cause} onClick={() => onChoose(cause)} title={`${title}: comes back when ${comes_back}`}>
                <Swatch model={model} cause={cause} theme={theme} />{title}
              </button>
            ), figure.cause, chosen === cause);
          })}
          {row(rss, "= RSS", "= RSS", false)}
        </tbody>
      </table>
    </div>
  );
}

function Where({ model, theme, cause, onCause }: { model: DiffModel; theme: Theme; cause: number; onCause: (cause: number) => void }) {
  const hasPython = useMemo(() => model.frameKind.includes(PYTHON), [model]);
  const [width, setWidth] = useState<Width>("size");
  const [frames, setFrames] = useState<"python" | "mixed">(hasPython ? "python" : "mixed");
  const [order, setOrder] = useState<"callers" | "inverted">("callers");
  const [state, setState] = useState<State | "all">("all");
  const [shared, setShared] = useState<"without" | "with">("without");
  const [search, setSearch] = useState("");
  const [zoom, setZoom] = useState(0);
  // What is shared since fork is counted in each process, and costs nothing: it would hide what does.
  const sharing = model.causeOfSlug.get("fork_shared") ?? -1;
  const hasShared = useMemo(() => model.diff.causes.some((figure) => figure.cause === "fork_shared"), [model]);
  const holds = useCallback((each: number) => (cause >= 0 ? each === cause : shared === "with" || each !== sharing), [cause, shared, sharing]);
  const tree = useMemo(() => {
    setZoom(0);
    return new DiffTree(model, { holds, width, python: frames === "python", inverted: order === "inverted" });
  }, [model, holds, width, frames, order]);
  const skin = useMemo(() => diffSkin(model, tree, theme), [model, tree, theme]);
  const matched = useMemo(() => (search ? tree.matched((node) => skin.isHit(node, search.toLowerCase())) : null), [tree, skin, search]);
  const key = (part: number, text: string) => <span><i class="key" style={{ background: changeColour(part, theme) }} />{text}</span>;
  return (
    <Card id="where" title="Which lines" aside={
      <p class="note" data-testid="where-total">
        {cause >= 0 && `${model.causes[cause].title}: `}<Size bytes={tree.a[0]} name="a" /> → <Size bytes={tree.b[0]} name="b" />: <Growth bytes={tree.change(0)} name="change" />
      </p>
    }>
      <div class="controls">
        <Choice label="width of boxes" value={width} onChange={setWidth} options={[["size", "by size"], ["change", "by difference"]]} />
        {hasPython && <Choice label="frames" value={frames} onChange={setFrames} options={[["python", "Python only"], ["mixed", "with native"]]} />}
        <Choice label="order" value={order} onChange={setOrder} options={[["callers", "callers first"], ["inverted", "lines first"]]} />
        {hasShared && cause < 0 && (
          <Choice label="what is shared since fork" value={shared} onChange={setShared} options={[["without", "without shared since fork"], ["with", "with it"]]} />
        )}
        <Search value={search} onChange={setSearch} />
        {matched !== null && <p class="note" aria-live="polite" data-testid="matched">{growthText(matched)} of {growthText(tree.change(0))}</p>}
        {cause >= 0 && <button type="button" onClick={() => onCause(-1)}>all causes</button>}
      </div>
      <p class="legend changes">
        {key(-1, "gone")}{key(-0.4, "shrunk")}{key(0, "same")}{key(0.4, "grown")}{key(1, "new in B")}
        <span>{width === "size" ? "as wide as A or B, whichever has more" : "as wide as the difference"}</span>
      </p>
      <Icicle tree={tree} skin={skin} theme={theme} search={search} zoom={Math.min(zoom, tree.size - 1)} onZoom={setZoom}
        what={width === "size" ? "memory, coloured by how it changed" : "difference"} />
      <Lines model={model} theme={theme} holds={holds} search={search} state={state} onState={setState} />
    </Card>
  );
}

interface Row extends DiffLine {
  key: number;
  text: string;
  number: number; // of its cause
}

function rowsOf(model: DiffModel): Row[] {
  return model.diff.lines.map((line, i) => {
    const name = line.line || "(no call recorded)";
    const text = i >= model.header.lines_shown ? "(smaller lines, summed)" : `${name}${movedText(line.line_a, line.line_b)}`;
    return { ...line, key: i, text, number: model.causeOfSlug.get(line.cause) ?? 0 };
  });
}

function Detail({ line }: { line: Row }) {
  const numbers = [line.line_a && `line ${line.line_a} in A`, line.line_b && `line ${line.line_b} in B`].filter(Boolean).join(", ");
  return (
    <div class="detail-body" tabIndex={0} role="region" aria-label={`About ${line.text}`}>
      <p><span class="code">{line.function || line.text}</span>{line.file && <> <span class="where">{line.file}</span></>}{numbers && <span class="where">{numbers}</span>}</p>
      <p>
        {line.a.toLocaleString("en")} bytes in A, {line.b.toLocaleString("en")} in B
        {line.standard_error > 0 && <>; the standard error of the difference is {sizeText(line.standard_error)}</>}
      </p>
    </div>
  );
}

function Lines({ model, theme, holds, search, state, onState }: {
  model: DiffModel; theme: Theme; holds: (cause: number) => boolean; search: string; state: State | "all"; onState: (state: State | "all") => void;
}) {
  const [chosen, setChosen] = useState<number | null>(null);
  const all = useMemo(() => rowsOf(model).filter((row) => holds(row.number)), [model, holds]);
  const wanted = search.toLowerCase();
  const rows = useMemo(() => all.filter((row) =>
    (state === "all" || row.state === state) &&
    (wanted === "" || row.text.toLowerCase().includes(wanted) || row.file.toLowerCase().includes(wanted) || model.causes[row.number].title.toLowerCase().includes(wanted))),
    [model, all, state, wanted]);
  const counted = (each: State) => all.filter((row) => row.state === each).length;
  const columns: Column<Row>[] = [
    { name: "line", cell: (row) => (
      <span class="line"><Swatch model={model} cause={row.number} theme={theme} />
        <button type="button" class="link code" aria-expanded={chosen === row.key} title={row.text}>{row.text}</button></span>
    ) },
    { name: "cause", lesser: true, cell: (row) => model.causes[row.number].title },
    { name: "A", numeric: true, lesser: true, sort: (a, b) => b.a - a.a, cell: (row) => <Size bytes={row.a} name="a" /> },
    { name: "B", numeric: true, lesser: true, sort: (a, b) => b.b - a.b, cell: (row) => <Size bytes={row.b} name="b" /> },
    { name: "difference", numeric: true, sort: (a, b) => b.change - a.change, cell: (row) => <Growth bytes={row.change} name="change" noise={row.state === "same"} /> },
    { name: "±", title: "standard error of the difference", numeric: true, lesser: true, cell: (row) => <ErrorOf figure={row} /> },
    { name: "state", cell: (row) => <StateBadge state={row.state} /> },
  ];
  return (
    <>
      <div class="controls">
        <Choice label="state of the lines" value={state} onChange={onState}
          options={[["all", "all lines"], ...STATES.map((each): [State, string] => [each, `${each} ${counted(each)}`])]} />
      </div>
      <List label="lines of code" testid="lines" columns={columns} rows={rows} keyOf={(row) => row.key}
        empty={search ? "Nothing matches." : "No line is so."} chosen={chosen}
        onChoose={(row) => setChosen(chosen === row.key ? null : row.key)} detail={(row) => <Detail line={row} />} />
    </>
  );
}

function Footer({ model }: { model: DiffModel }) {
  const { lines, lines_shown, stacks_left_out } = model.header, { a, b, value } = model.diff;
  const bounded: string[] = [];
  if (lines > lines_shown) bounded.push(`${(lines - lines_shown).toLocaleString("en")} lines with smaller differences are summed up per cause (--top).`);
  if (stacks_left_out > 0) bounded.push(`${stacks_left_out.toLocaleString("en")} small stacks are summed up per cause; no total changes.`);
  return (
    <footer>
      <p data-testid="bounds">{bounded.join(" ")} The same figures: <span class="code">whyrss diff {a.path} {b.path}{value === "growth" ? "" : ` --value ${value}`} --format json</span></p>
      <p>Lines of B are found again by function and file; “same” is what differs by no more than two standard errors. Drawn with Preact (MIT licence; its text stands at the end of this file).</p>
    </footer>
  );
}
