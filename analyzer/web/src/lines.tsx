// The table of lines: what each line of code holds, touched or copied, with its stacks.

import { useMemo, useState } from "preact/hooks";
import { BY_KERNEL, type Metric, NAMED, NOT_KNOWN, type Parts, SMALLER_SITES } from "./account";
import type { Theme } from "./colours";
import type { Model } from "./data";
import { baseName, sizeText } from "./format";
import { type Column, List } from "./list";
import { Growth, Size, Swatch } from "./parts";
import { isHit } from "./tree";

interface Line {
  key: number | string;
  cause: number;
  text: string;
  mapping: number;
  made: string;
  growth: number;
  resident: number;
  peak: number;
  variance: number;
  parts: number[];
}

function lineText(model: Model, parts: Parts, i: number): string {
  if (parts.kind[i] === SMALLER_SITES) return "(smaller sites, summed)";
  if (parts.kind[i] === NOT_KNOWN) return "(not known by whom)";
  const line = model.stackText(parts.stack[i]);
  if (parts.kind[i] === BY_KERNEL) return line ? `${line}, within a system call` : "(the kernel)";
  if (!line && parts.mapping[i] >= 0) return `${baseName(model.strings[parts.mapping[i]]) || model.strings[parts.mapping[i]]} (no line is known)`;
  return line || "(no line is known)";
}

function linesOf(model: Model, parts: Parts): Line[] {
  const lines = new Map<number | string, Line>();
  const mappings = model.strings.length + 1;
  for (let i = 0; i < parts.count; i++) {
    const plain = parts.kind[i] === NAMED || parts.kind[i] === BY_KERNEL;
    const line = plain ? model.stackLine[parts.stack[i]] : 0;
    const made = parts.made[i] >= 0 ? model.stackText(parts.made[i]) : "";
    const label = line > 0 ? model.frameLabel[line - 1] + 1 : 0;
    const place = ((label * 16 + parts.cause[i]) * 4 + parts.kind[i]) * mappings + parts.mapping[i] + 1; // below 2^53
    const key = made ? `${place} ${made}` : place;
    let entry = lines.get(key);
    if (!entry) {
      entry = { key, cause: parts.cause[i], text: lineText(model, parts, i), mapping: parts.mapping[i], made,
        growth: 0, resident: 0, peak: 0, variance: 0, parts: [] };
      lines.set(key, entry);
    }
    entry.growth += parts.growth[i];
    entry.resident += parts.resident[i];
    entry.peak += parts.peak[i];
    entry.variance += parts.variance[i];
    entry.parts.push(i);
  }
  return [...lines.values()];
}

// Of each node of the stack table whether it or one of its callers matches.
function nodesThatMatch(model: Model, wanted: string): Uint8Array {
  const ofFrame = Uint8Array.from(model.frameKind, (_, frame) => (isHit(model, frame, -1, wanted) ? 1 : 0));
  const hits = new Uint8Array(model.nodeParent.length);
  for (let node = 1; node < hits.length; node++) hits[node] = ofFrame[model.nodeFrame[node]] | hits[model.nodeParent[node]];
  return hits;
}

function Stack({ model, stack }: { model: Model; stack: number }) {
  const frames = model.stackFrames(stack);
  if (frames.length === 0) return <p>No stack was recorded for this memory.</p>;
  return (
    <ol class="stack">
      {frames.map((frame, i) => {
        const file = model.strings[model.frameFile[frame]] || model.strings[model.frameModule[frame]];
        return (
          <li key={i} class={model.frameKind[frame] === 0 ? "python" : "native"}>
            <span class="code">{model.frameText(frame)}</span> <span class="where">{file}</span>
            {model.frameKind[frame] === 2 && <span class="where"> inlined</span>}
          </li>
        );
      })}
    </ol>
  );
}

// Each with the larger of its growth and what is resident, the largest first.
function stacksOf(parts: Parts, line: Line): [number, number][] {
  const stacks = new Map<number, number>();
  for (const i of line.parts) {
    const most = Math.max(Math.abs(parts.growth[i]), parts.resident[i]);
    stacks.set(parts.stack[i], (stacks.get(parts.stack[i]) ?? 0) + most);
  }
  return [...stacks].sort((a, b) => b[1] - a[1]);
}

function Detail({ model, parts, line }: { model: Model; parts: Parts; line: Line }) {
  const stacks = stacksOf(parts, line);
  const [at, setAt] = useState(0);
  return (
    <div class="detail-body" tabIndex={0} role="region" aria-label={`Stacks of ${line.text}`}>
      {line.mapping >= 0 && <p>mapping <span class="code">{model.strings[line.mapping]}</span></p>}
      {stacks.length > 1 && (
        <p>
          {stacks.length} stacks: this one {sizeText(stacks[at][1])}{" "}
          <button type="button" disabled={at === 0} onClick={() => setAt(at - 1)}>larger</button>{" "}
          <button type="button" disabled={at + 1 >= stacks.length} onClick={() => setAt(at + 1)}>smaller</button>
        </p>
      )}
      <Stack model={model} stack={stacks[Math.min(at, stacks.length - 1)][0]} />
    </div>
  );
}

export function Lines({ model, parts, theme, metric, search, copied }: {
  model: Model; parts: Parts; theme: Theme; metric: Metric; search: string; copied: boolean;
}) {
  const [chosen, setChosen] = useState<number | string | null>(null);
  const all = useMemo(() => linesOf(model, parts), [model, parts]);
  const rows = useMemo(() => {
    const wanted = search.toLowerCase();
    const hits = wanted ? nodesThatMatch(model, wanted) : new Uint8Array(0);
    const holds = (line: Line) =>
      line.text.toLowerCase().includes(wanted) || line.made.toLowerCase().includes(wanted) ||
      (line.mapping >= 0 && model.strings[line.mapping].toLowerCase().includes(wanted)) ||
      line.parts.some((i) => hits[model.stackNode[parts.stack[i]]] === 1);
    const value = { growth: (line: Line) => line.growth, shrinkage: (line: Line) => -line.growth,
      resident: (line: Line) => line.resident, peak: (line: Line) => line.peak }[metric];
    return (wanted ? all.filter(holds) : all).sort((a, b) => value(b) - value(a) || b.resident - a.resident);
  }, [model, parts, all, search, metric]);

  const error = (line: Line) => Math.round(Math.sqrt(line.variance));
  const columns: Column<Line>[] = [
    { name: copied ? "copied by" : "line", cell: (line) => (
      <span class="line"><Swatch model={model} cause={line.cause} theme={theme} />
        <button type="button" class="link code" aria-expanded={chosen === line.key} title={line.text}>{line.text}</button></span>
    ) },
    ...(copied
      ? [{ name: "made at", cell: (line: Line) => <span class="code clip" title={line.made}>{line.made || "(no line is known)"}</span> }]
      : [
        { name: "cause", lesser: true, cell: (line: Line) => model.causes[line.cause].title },
        { name: "mapping", lesser: true, cell: (line: Line) => (
          <span class="clip" title={line.mapping >= 0 ? model.strings[line.mapping] : ""}>{line.mapping >= 0 ? baseName(model.strings[line.mapping]) || model.strings[line.mapping] : ""}</span>
        ) },
      ]),
    { name: copied ? "copied" : "growth", numeric: true, sort: (a, b) => b.growth - a.growth, cell: (line) => <Growth bytes={line.growth} name="growth" /> },
    { name: "±", title: "standard error of an estimate from samples", numeric: true, lesser: true, cell: (line) => (line.variance > 0 ? sizeText(error(line)) : "") },
    ...(copied ? [] : [
      { name: "resident", title: "at the end of the interval", numeric: true, sort: (a: Line, b: Line) => b.resident - a.resident, cell: (line: Line) => <Size bytes={line.resident} name="resident" /> },
      { name: "at peak", title: "when there was most in the interval", numeric: true, lesser: true, sort: (a: Line, b: Line) => b.peak - a.peak, cell: (line: Line) => <Size bytes={line.peak} name="peak" /> },
    ]),
  ];
  return (
    <List label="lines of code" testid="lines" columns={columns} rows={rows} keyOf={(line) => line.key}
      empty={search ? "Nothing matches." : "No memory of this kind in this interval."} chosen={chosen}
      onChoose={(line) => setChosen(chosen === line.key ? null : line.key)}
      detail={(line) => <Detail key={line.key} model={model} parts={parts} line={line} />} />
  );
}

export function Mappings({ model, parts, theme }: { model: Model; parts: Parts; theme: Theme }) {
  const rows = useMemo(() => {
    const found = new Map<string, { key: string; name: string; cause: number; growth: number; resident: number; peak: number }>();
    for (let i = 0; i < parts.count; i++) {
      const others = parts.kind[i] === SMALLER_SITES;
      const key = `${parts.cause[i]} ${others ? -2 : parts.mapping[i]}`;
      let row = found.get(key);
      if (!row) {
        const name = others ? "(smaller sites, summed)" : parts.mapping[i] < 0 ? "(nameless)" : model.strings[parts.mapping[i]];
        found.set(key, (row = { key, name, cause: parts.cause[i], growth: 0, resident: 0, peak: 0 }));
      }
      row.growth += parts.growth[i];
      row.resident += parts.resident[i];
      row.peak += parts.peak[i];
    }
    return [...found.values()].sort((a, b) => b.resident - a.resident || b.growth - a.growth);
  }, [model, parts]);
  type Row = (typeof rows)[number];
  const columns: Column<Row>[] = [
    { name: "mapping", cell: (row) => <span class="line"><Swatch model={model} cause={row.cause} theme={theme} /><span class="code clip" title={row.name}>{row.name}</span></span> },
    { name: "cause", lesser: true, cell: (row) => model.causes[row.cause].title },
    { name: "growth", numeric: true, sort: (a, b) => b.growth - a.growth, cell: (row) => <Growth bytes={row.growth} name="growth" /> },
    { name: "resident", numeric: true, sort: (a, b) => b.resident - a.resident, cell: (row) => <Size bytes={row.resident} name="resident" /> },
    { name: "at peak", numeric: true, lesser: true, sort: (a, b) => b.peak - a.peak, cell: (row) => <Size bytes={row.peak} name="peak" /> },
  ];
  return <List label="mappings" testid="mappings" columns={columns} rows={rows} keyOf={(row) => row.key} empty="No memory in this interval." />;
}
