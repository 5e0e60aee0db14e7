// The page of a job of many nodes: sentences, memory over time, processes alike with outliers first, nodes, lines.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Theme } from "./colours";
import { secondsText, sizeText } from "./format";
import { JobCharts, QUANTILES } from "./job_chart";
import {
  ALL, type Group, type GroupLine, type JobModel, type JobNode, labelText, lineText, type Outlier, rangesText, type SharedFile, type Spread,
} from "./job_data";
import { type Column, List } from "./list";
import { Card, Search, Size, Swatch, ThemeButton } from "./parts";
import { useTheme } from "./theme";

interface State {
  group: number;
  cause: number; // -1: all
}

// What is chosen, in the address too.
function useChosen(model: JobModel): [State, (next: Partial<State>) => void] {
  const read = (): State => {
    const words = new URLSearchParams(location.hash.slice(1));
    const group = Number(words.get("group") ?? Number.NaN);
    return { group: model.job.groups[group] ? group : ALL, cause: model.causeOfSlug.get(words.get("cause") ?? "") ?? -1 };
  };
  const [state, setState] = useState(read);
  useEffect(() => {
    const follow = () => setState(read());
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, [model]);
  return [state, (change) => {
    const next = { ...state, ...change };
    const words = [next.group === ALL ? "" : `group=${next.group}`, next.cause < 0 ? "" : `cause=${model.causes[next.cause].slug}`];
    history.replaceState(null, "", `#${words.filter(Boolean).join("&") || "all"}`);
    setState(next);
  }];
}

function counted(count: number, one: string, several: string): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
}

export function JobApp({ model }: { model: JobModel }) {
  const [theme, toggleTheme] = useTheme();
  const [state, choose] = useChosen(model);
  const below = useMemo(() => (
    <>
      <Card id="lines" title="Which lines" aside={<p class="note">at the peak of each process{state.group !== ALL && `, of ${model.groupName(state.group)}`}</p>}>
        <Lines model={model} theme={theme} state={state} onAll={() => choose({ cause: -1, group: ALL })} />
      </Card>
      <Files model={model} />
    </>
  ), [model, theme, state]);
  const fixed = useMemo(() => (
    <Card id="nodes" title={model.job.nodes.length === 1 ? "Node" : "Nodes"} aside={<p class="note">at the peak of each; files and shared memory once</p>}>
      <Nodes model={model} />
    </Card>
  ), [model]);
  return (
    <div class="job">
      <Header model={model} theme={theme} onTheme={toggleTheme} />
      <main>
        <Headlines model={model} />
        <Over model={model} theme={theme} state={state} onChoose={choose} />
        <Card id="processes" title="Processes alike" aside={<p class="note">{model.job.process_count.toLocaleString("en")} processes, at the peak of each</p>}>
          {model.job.outliers.length > 0 && <Outliers model={model} theme={theme} />}
          <Groups model={model} theme={theme} state={state} onGroup={(group) => choose({ group: group === state.group ? ALL : group })} />
        </Card>
        {fixed}
        {below}
        <Card id="missing" title="What is missing">
          <ul data-testid="missing">{model.header.missing.map((text, i) => <li key={i}>{text}</li>)}</ul>
        </Card>
      </main>
      <Footer model={model} />
    </div>
  );
}

function Header({ model, theme, onTheme }: { model: JobModel; theme: Theme; onTheme: () => void }) {
  const { job, header } = model;
  return (
    <header>
      <div class="title">
        <p class="brand">whyrss job</p>
        <h1 data-testid="head">{header.head}</h1>
        <ThemeButton theme={theme} onTheme={onTheme} />
      </div>
      <p class="facts">
        <span class="code">{job.path}</span>
        <span>{secondsText(model.stretches * model.stretchSeconds)}</span>
        {job.expected_nodes !== null && <span>{job.expected_nodes.toLocaleString("en")} nodes expected</span>}
        {job.complete < job.recordings && <span class="bad">{(job.recordings - job.complete).toLocaleString("en")} recordings incomplete</span>}
        <span>whyrss {job.versions.join(", ")}</span>
      </p>
    </header>
  );
}

function Headlines({ model }: { model: JobModel }) {
  return (
    <section class="verdicts" aria-label="What stands out" data-testid="headlines">
      {model.header.headlines.map(({ severity, text }, i) => (
        <div key={i} class={`verdict ${severity}`}>
          <div class="verdict-head">
            <span class={`badge ${severity}`}>{severity}</span>
            <span class="headline">{text}</span>
          </div>
        </div>
      ))}
    </section>
  );
}

function Over({ model, theme, state, onChoose }: { model: JobModel; theme: Theme; state: State; onChoose: (next: Partial<State>) => void }) {
  const [cursor, setCursor] = useState<number | null>(null);
  const timeline = model.timelines.get(state.group);
  return (
    <Card id="timeline" title="Memory by cause over time" aside={
      <label>
        <span class="label">of </span>
        <select value={String(state.group)} data-testid="group" onChange={(event) => onChoose({ group: Number((event.target as HTMLSelectElement).value) })}>
          <option value={String(ALL)}>all processes</option>
          {model.job.groups.map((group, i) => <option key={i} value={String(i)}>{model.groupName(i)} ({group.processes.toLocaleString("en")})</option>)}
        </select>
      </label>
    }>
      <div class="timeline-and-causes">
        <div class="timeline-box">
          {timeline
            ? <>
                <JobCharts model={model} timeline={timeline} theme={theme} cursor={cursor} onCursor={setCursor} />
                <p class="told" data-testid="told">
                  {cursor === null ? `Summed over processes; RSS counts shared memory in each. 0 is when a node's first recording began.` : <>
                    {secondsText(cursor * model.stretchSeconds)}: {counted(timeline.processes[cursor], "process", "processes")}
                    {QUANTILES.map(([name, text]) => <span key={name}>, {text} <Size bytes={timeline[name][cursor]} name={name} /></span>)}
                  </>}
                </p>
              </>
            : <p class="empty">Over time the page holds the largest kinds of processes alone.</p>}
        </div>
        <Causes model={model} theme={theme} state={state} cursor={cursor} onCause={(cause) => onChoose({ cause: cause === state.cause ? -1 : cause })} />
      </div>
    </Card>
  );
}

interface CauseRow {
  cause: number;
  spread: Spread;
}

function causesOf(model: JobModel, group: number): CauseRow[] {
  const sums = new Map<number, Spread>();
  const groups = group === ALL ? model.job.groups : [model.job.groups[group]];
  for (const { causes } of groups)
    for (const { cause, at_peak } of causes) {
      const number = model.causeOfSlug.get(cause) ?? 0, known = sums.get(number);
      sums.set(number, known ? { ...known, sum: known.sum + at_peak.sum, max: Math.max(known.max, at_peak.max) } : at_peak);
    }
  return [...sums].map(([cause, spread]) => ({ cause, spread })).sort((a, b) => b.spread.sum - a.spread.sum);
}

function Causes({ model, theme, state, cursor, onCause }: {
  model: JobModel; theme: Theme; state: State; cursor: number | null; onCause: (cause: number) => void;
}) {
  const rows = useMemo(() => causesOf(model, state.group).filter((row) => row.spread.sum > 0), [model, state.group]);
  const isGroup = state.group !== ALL, timeline = model.timelines.get(state.group);
  const now = (cause: number) => (cursor === null ? null : (timeline?.causes.get(cause)?.[cursor] ?? 0));
  return (
    <div class="causes" data-testid="causes" tabIndex={0} role="region" aria-label="Table of causes">
      <table>
        <caption class="unseen">Memory by cause, at the peak of each process</caption>
        <thead>
          <tr>
            <th scope="col">at the peak of each</th>
            {isGroup && <th scope="col" class="number">median</th>}
            <th scope="col" class="number">most</th>
            <th scope="col" class="number">sum</th>
            <th scope="col" class="number lesser at-moment">{cursor === null ? <span class="unseen">at the moment pointed at</span> : `at ${secondsText(cursor * model.stretchSeconds)}`}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ cause, spread }) => (
            <tr key={cause} data-cause={model.causes[cause].slug} class={state.cause === cause ? "chosen" : ""}>
              <th scope="row">
                <button type="button" class="link" aria-pressed={state.cause === cause} onClick={() => onCause(cause)}
                  title={`${model.causes[cause].title}: comes back when ${model.causes[cause].comes_back}`}>
                  <Swatch model={model} cause={cause} theme={theme} />{model.causes[cause].title}
                </button>
              </th>
              {isGroup && <td class="number"><Size bytes={spread.median} name="median" /></td>}
              <td class="number"><Size bytes={spread.max} name="max" /></td>
              <td class="number"><Size bytes={spread.sum} name="sum" /></td>
              <td class="number lesser at-moment">{now(cause) !== null && <Size bytes={now(cause)} name="now" />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Outliers({ model, theme }: { model: JobModel; theme: Theme }) {
  const columns: Column<Outlier>[] = [
    { name: "far more than the median", cell: (row) => <span class="line"><span class="code clip" title={row.headline}>{labelText(row)}{row.rank !== null && ` on ${row.node}`}</span></span> },
    { name: "of", lesser: true, cell: (row) => <span class="clip">{model.groupName(row.group)}</span> },
    { name: "holds", title: "at its peak, without what it shares since a fork", numeric: true, sort: (a, b) => b.held - a.held, cell: (row) => <Size bytes={row.held} name="held" /> },
    { name: "median", numeric: true, cell: (row) => <Size bytes={row.median} name="median" /> },
    { name: "most of it", cell: (row) => row.most && (
      <span class="line"><Swatch model={model} cause={model.causeOfSlug.get(row.most.cause) ?? 0} theme={theme} /><span class="code clip" title={lineText(row.most)}>{lineText(row.most)}</span></span>
    ) },
    { name: "there", numeric: true, lesser: true, cell: (row) => row.most && <Size bytes={row.most.bytes} name="line" /> },
    { name: "its median", numeric: true, lesser: true, cell: (row) => row.most && <Size bytes={row.most.median} name="line_median" /> },
  ];
  return <List label="outliers" testid="outliers" columns={columns} rows={model.job.outliers} keyOf={(row) => `${row.node} ${row.pid}`} empty="No process holds far more than the median." />;
}

interface GroupRow extends Group {
  key: number;
}

function GroupDetail({ model, group, theme }: { model: JobModel; group: Group; theme: Theme }) {
  const { p50, p95, p99 } = group.rss_by_time;
  return (
    <div class="detail-body" tabIndex={0} role="region" aria-label={`About ${group.name}`}>
      <p>
        {group.ranks.length > 0 && <>Ranks {rangesText(group.ranks)}. </>}
        The largest is {labelText(group.largest)} on {group.largest.node}. At a moment of their lives: median <Size bytes={p50} />, 95 % <Size bytes={p95} />, 99 % <Size bytes={p99} />.
      </p>
      <ul>
        {group.verdicts.map((verdict) => (
          <li key={verdict.id}>
            <span class={`badge ${verdict.severity}`}>{verdict.severity}</span> {verdict.id} in {verdict.processes.toLocaleString("en")}, median <Size bytes={verdict.bytes.median} />,
            most <Size bytes={verdict.bytes.max} /> ({labelText(verdict.most)}): {verdict.headline}
          </li>
        ))}
      </ul>
      <p>
        {group.causes.filter(({ at_peak }) => at_peak.sum > 0).map(({ cause, at_peak }) => {
          const number = model.causeOfSlug.get(cause) ?? 0;
          return <span key={cause} class="cause-of-group"><Swatch model={model} cause={number} theme={theme} />{model.causes[number].title} <Size bytes={at_peak.sum} /></span>;
        })}
      </p>
    </div>
  );
}

function Groups({ model, theme, state, onGroup }: { model: JobModel; theme: Theme; state: State; onGroup: (group: number) => void }) {
  const rows = useMemo(() => model.job.groups.map((group, key): GroupRow => ({ ...group, key })), [model]);
  const figure = (name: string, part: keyof Spread, lesser = false): Column<GroupRow> => ({
    name, numeric: true, lesser, sort: (a, b) => b.rss_peak[part] - a.rss_peak[part], cell: (row) => <Size bytes={row.rss_peak[part]} name={part} />,
  });
  const columns: Column<GroupRow>[] = [
    { name: "processes", cell: (row) => (
      <span class="line"><button type="button" class="link code" aria-expanded={state.group === row.key} title={model.groupName(row.key)}>{model.groupName(row.key)}</button></span>
    ) },
    { name: "ranks", lesser: true, cell: (row) => <span class="clip" title={rangesText(row.ranks)}>{rangesText(row.ranks, 3)}</span> },
    { name: "count", numeric: true, sort: (a, b) => b.processes - a.processes, cell: (row) => <data value={row.processes} data-name="processes">{row.processes.toLocaleString("en")}</data> },
    figure("median", "median", true), figure("95 %", "p95", true), figure("most", "max"), figure("sum", "sum"),
  ];
  return (
    <List label="processes alike" testid="groups" columns={columns} rows={rows} keyOf={(row) => row.key} empty="No process was recorded."
      chosen={state.group === ALL ? null : state.group} onChoose={(row) => onGroup(row.key)} detail={(row) => <GroupDetail model={model} group={row} theme={theme} />} />
  );
}

function fullness({ total, limit }: JobNode): number {
  return limit === null || limit <= 0 ? -1 : total / limit;
}

function Usage({ node }: { node: JobNode }) {
  const part = fullness(node);
  if (part < 0) return <span class="unknown">no limit known</span>;
  const level = node.oom_killed > 0 || part >= 1 ? "full" : part >= 0.8 ? "near" : "";
  return (
    <span class="usage" title={node.limit_of === "cgroup" ? "of the limit of its memory cgroup" : "of the memory of the machine"}>
      <span class="usage-bar" aria-hidden="true"><i class={level} style={{ width: `${Math.min(part, 1) * 100}%` }} /></span> {(part * 100).toFixed(part < 0.1 ? 1 : 0)} %
    </span>
  );
}

function Nodes({ model }: { model: JobModel }) {
  const [wanted, setWanted] = useState("");
  const rows = useMemo(() => model.job.nodes.filter((node) => node.name.toLowerCase().includes(wanted.toLowerCase())), [model, wanted]);
  const figure = (name: string, key: "private_peak" | "files_once" | "shared_once" | "total" | "rss_sum_peak", title: string, lesser = true): Column<JobNode> => ({
    name, title, numeric: true, lesser, sort: (a, b) => b[key] - a[key], cell: (row) => <Size bytes={row[key]} name={key} />,
  });
  const columns: Column<JobNode>[] = [
    { name: "node", cell: (row) => (
      <span class="line"><span class="code clip" title={row.name}>{row.name}</span>{row.oom_killed > 0 && <span class="badge problem">{row.oom_killed} killed</span>}</span>
    ) },
    { name: "of its limit", sort: (a, b) => fullness(b) - fullness(a), cell: (row) => <Usage node={row} /> },
    figure("together", "total", "own, files once, shared memory once", false),
    { name: "limit", numeric: true, lesser: true, sort: (a, b) => (b.limit ?? -1) - (a.limit ?? -1), cell: (row) => <Size bytes={row.limit} name="limit" /> },
    { name: "processes", numeric: true, lesser: true, sort: (a, b) => b.processes - a.processes, cell: (row) => row.processes.toLocaleString("en") },
    figure("own", "private_peak", "without files, shared memory and what forks share, at one moment"),
    figure("files", "files_once", "each file once, with the most that one process mapped"),
    figure("shared", "shared_once", "each piece of shared memory once"),
    figure("RSS summed", "rss_sum_peak", "as tools add it up: shared pages count in every process"),
    { name: "PSS peaks", title: "the peaks of its processes, summed; at most so much more where PSS was not read", numeric: true, lesser: true, sort: (a, b) => b.pss_peaks - a.pss_peaks,
      cell: (row) => (row.pss_peaks > 0 ? <Size bytes={row.pss_peaks} name="pss" /> : <Size bytes={null} />) },
  ];
  return (
    <>
      <div class="controls">
        <label class="search"><span class="unseen">Find a node</span>
          <input type="search" value={wanted} placeholder="node" data-testid="find-node" onInput={(event) => setWanted((event.target as HTMLInputElement).value)} /></label>
        <p class="note" aria-live="polite">{counted(rows.length, "node", "nodes")}{model.header.left_out.nodes > 0 && `; ${model.header.left_out.nodes.toLocaleString("en")} further from their limit are not in this page`}</p>
      </div>
      <List label="nodes" testid="nodes" columns={columns} rows={rows} keyOf={(row) => row.name} empty="No node of that name." />
    </>
  );
}

interface LineRow extends GroupLine {
  key: string;
  group: number;
  number: number; // of its cause
  text: string;
}

function rowsOf(model: JobModel): LineRow[] {
  const rows = model.job.groups.flatMap(({ lines }, group) => lines.map((line, i): LineRow => ({
    ...line, key: `${group} ${i}`, group, number: model.causeOfSlug.get(line.cause) ?? 0, text: lineText(line),
  })));
  return rows.sort((a, b) => b.sum - a.sum);
}

function LineDetail({ row, processes }: { row: LineRow; processes: number }) {
  return (
    <div class="detail-body" tabIndex={0} role="region" aria-label={`About ${row.text}`}>
      <p><span class="code">{row.line || row.text}</span>{row.file && <span class="where">{row.file}</span>}{row.mapping && <span class="where">{row.mapping}</span>}</p>
      <p>
        {row.processes.toLocaleString("en")} of {processes.toLocaleString("en")} processes list it: {row.sum.toLocaleString("en")} bytes together
        {row.standard_error > 0 && <>, a standard error of {sizeText(row.standard_error)}</>}.
        {row.error > 0 && <> The others may have {sizeText(row.error)} of it together, at most.</>}
      </p>
    </div>
  );
}

function Lines({ model, theme, state, onAll }: { model: JobModel; theme: Theme; state: State; onAll: () => void }) {
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<string | null>(null);
  const all = useMemo(() => rowsOf(model), [model]);
  const wanted = search.toLowerCase();
  const rows = useMemo(() => all.filter((row) =>
    (state.group === ALL || row.group === state.group) && (state.cause < 0 || row.number === state.cause) &&
    (wanted === "" || row.text.toLowerCase().includes(wanted) || row.file.toLowerCase().includes(wanted))), [all, state, wanted]);
  const columns: Column<LineRow>[] = [
    { name: "line", cell: (row) => (
      <span class="line"><Swatch model={model} cause={row.number} theme={theme} />
        <button type="button" class="link code" aria-expanded={chosen === row.key} title={row.text}>{row.text}</button></span>
    ) },
    { name: "cause", lesser: true, cell: (row) => model.causes[row.number].title },
    { name: "of", lesser: true, cell: (row) => <span class="clip">{model.groupName(row.group)}</span> },
    { name: "median", title: "of all processes of its kind, to 1 %", numeric: true, lesser: true, sort: (a, b) => b.median - a.median, cell: (row) => <Size bytes={row.median} name="median" /> },
    { name: "most", title: "of one process", numeric: true, sort: (a, b) => b.max - a.max, cell: (row) => <Size bytes={row.max} name="max" /> },
    { name: "sum", numeric: true, sort: (a, b) => b.sum - a.sum, cell: (row) => <Size bytes={row.sum} name="sum" /> },
    { name: "at most", title: "with what processes that do not list it may have", numeric: true, lesser: true, cell: (row) => <Size bytes={row.sum + row.error} name="at_most" /> },
  ];
  return (
    <>
      <div class="controls">
        <Search value={search} onChange={setSearch} />
        {(state.cause >= 0 || state.group !== ALL) && <button type="button" onClick={onAll}>all causes and processes</button>}
        <p class="note" aria-live="polite">{state.cause >= 0 && `${model.causes[state.cause].title}: `}{counted(rows.length, "line", "lines")}</p>
      </div>
      <List label="lines of code" testid="lines" columns={columns} rows={rows} keyOf={(row) => row.key} empty="No line of that kind is listed."
        chosen={chosen} onChoose={(row) => setChosen(row.key === chosen ? null : row.key)}
        detail={(row) => <LineDetail row={row} processes={model.job.groups[row.group].processes} />} />
    </>
  );
}

function Files({ model }: { model: JobModel }): ComponentChildren {
  const rows = useMemo(() => model.job.files.filter((file) => file.processes > file.nodes && file.rss_sum >= 1 << 20), [model]);
  if (rows.length === 0) return null;
  const columns: Column<SharedFile>[] = [
    { name: "file", cell: (row) => <span class="line"><span class="code clip" title={row.mapping}>{row.mapping}</span></span> },
    { name: "processes", numeric: true, sort: (a, b) => b.processes - a.processes, cell: (row) => row.processes.toLocaleString("en") },
    { name: "nodes", numeric: true, lesser: true, sort: (a, b) => b.nodes - a.nodes, cell: (row) => row.nodes.toLocaleString("en") },
    { name: "RSS summed", numeric: true, sort: (a, b) => b.rss_sum - a.rss_sum, cell: (row) => <Size bytes={row.rss_sum} name="rss_sum" /> },
    { name: "once a node", numeric: true, sort: (a, b) => b.once - a.once, cell: (row) => <Size bytes={row.once} name="once" /> },
  ];
  return (
    <Card id="files" title="File cache that several processes of a node map">
      <List label="files" testid="files" columns={columns} rows={rows} keyOf={(row) => row.mapping} empty="" />
    </Card>
  );
}

function Footer({ model }: { model: JobModel }) {
  const { lines, files } = model.header.left_out;
  return (
    <footer>
      <p>Sums count shared pages in every process that maps them; a node's memory counts files and shared memory once.
        Quantiles are true to 1 %; over time sums are averages of {secondsText(model.stretchSeconds)}, quantiles the most of each process in it.</p>
      {(lines > 0 || files > 0) && <p data-testid="bounds">{lines.toLocaleString("en")} smaller lines and {files.toLocaleString("en")} smaller files are not in this page.</p>}
      <p>Written by whyrss {model.job.versions.join(", ")}; one file, which asks for nothing.</p>
    </footer>
  );
}
