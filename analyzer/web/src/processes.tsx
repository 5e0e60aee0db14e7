// The tree of processes, each with its memory over time.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ProcessFigures, processFigures, type Pss, TREE } from "./account";
import { themeColour, type Theme } from "./colours";
import type { Model } from "./data";
import { secondsText } from "./format";
import type { Selection } from "./interval";
import { type Column, List } from "./list";
import { Growth, Size } from "./parts";
import { pixelPoints } from "./timeline_data";

interface Row extends ProcessFigures {
  depth: number;
  fold: Fold | null; // each figure is then the most of one in it
}

// Processes that one parent started with the same command line but for numbers, that ended alike and started none.
interface Fold {
  key: number; // the process above it
  processes: number[];
}

interface Place {
  process: number;
  depth: number;
  fold: Fold | null; // this is the place of the fold, and `process` the one above it
}

const SHOWN_OF_KIND = 3, FEW_OF_KIND = 12; // so many workers are still looked at one by one

function kindOf(model: Model, process: number): string {
  const { command, exe, end_signal } = model.processes[process];
  return [end_signal, exe, ...command].join("\0").replace(/[0-9]+/g, "");
}

// Of many alike those with the highest peaks, in the order of birth, and where the others are folded.
function withFolds(model: Model, siblings: number[], hasChildren: (process: number) => boolean): { process: number; fold: Fold | null }[] {
  const kinds = new Map<string, number[]>();
  for (const process of siblings) {
    if (hasChildren(process)) continue;
    const kind = kindOf(model, process), others = kinds.get(kind);
    if (others) others.push(process);
    else kinds.set(kind, [process]);
  }
  const foldBehind = new Map<number, Fold>(), folded = new Set<number>();
  for (const processes of kinds.values()) {
    if (processes.length <= FEW_OF_KIND) continue;
    const largest = [...processes].sort((a, b) => (model.processes[b].high_water ?? 0) - (model.processes[a].high_water ?? 0)).slice(0, SHOWN_OF_KIND);
    const key = processes.filter((process) => largest.includes(process))[SHOWN_OF_KIND - 1];
    const others = processes.filter((process) => !largest.includes(process));
    foldBehind.set(key, { key, processes: others });
    for (const process of others) folded.add(process);
  }
  return siblings.filter((process) => !folded.has(process)).flatMap((process) => {
    const fold = foldBehind.get(process);
    return fold ? [{ process, fold: null }, { process, fold }] : [{ process, fold: null }];
  });
}

// Children below their parents, in the order of birth.
export function treeOrder(model: Model): Place[] {
  const children = new Map<number, number[]>();
  const roots: number[] = [];
  model.processes.forEach((process, i) => {
    const parent = process.parent === null ? undefined : model.processOfPid.get(process.parent);
    if (parent === undefined || parent === i) roots.push(i);
    else if (children.has(parent)) children.get(parent)?.push(i);
    else children.set(parent, [i]);
  });
  const hasChildren = (process: number) => children.has(process);
  const places = (siblings: number[], depth: number) => withFolds(model, siblings, hasChildren).map((place) => ({ ...place, depth })).reverse();
  const order: Place[] = [];
  const seen = new Set<number>();
  const open = places(roots, 0);
  for (let next = open.pop(); next; next = open.pop()) {
    if (next.fold) for (const process of next.fold.processes) seen.add(process);
    else if (seen.has(next.process)) continue;
    seen.add(next.process);
    order.push(next);
    if (!next.fold) for (const place of places(children.get(next.process) ?? [], next.depth + 1)) open.push(place);
  }
  model.processes.forEach((_, process) => seen.has(process) || order.push({ process, depth: 0, fold: null })); // of a circle
  return order;
}

const WIDTH = 120, HEIGHT = 22;

function Spark({ model, process, theme }: { model: Model; process: number; theme: Theme }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const element = canvas.current, pen = element?.getContext("2d");
    if (!element || !pen) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = WIDTH * ratio;
    element.height = HEIGHT * ratio;
    pen.scale(ratio, ratio);
    const polled = model.pollStart[process + 1] > model.pollStart[process];
    const [times, bytes, begin, end] = polled
      ? [model.pollTime, model.pollRss, model.pollStart[process], model.pollStart[process + 1]]
      : [model.time, model.rss, model.snapshotStart[process], model.snapshotStart[process + 1]];
    if (begin === end) return;
    let most = 1;
    for (let i = begin; i < end; i++) most = Math.max(most, bytes[i]);
    const whole = Math.max(model.report.interval.to_s, 1e-9);
    const x = (time: number) => Math.min((time / whole) * WIDTH, WIDTH - 1), y = (value: number) => HEIGHT - 1 - (value / most) * (HEIGHT - 3);
    pen.beginPath();
    pen.moveTo(x(times[begin]), HEIGHT);
    let before = bytes[begin];
    for (const point of pixelPoints(times, bytes, begin, end, x)) {
      pen.lineTo(point.x, y(before));
      pen.lineTo(point.x, y(point.bytes));
      before = point.bytes;
    }
    const last = Math.max(x(times[end - 1]), x(model.processes[process].ended_s ?? model.processes[process].broken_off_s ?? whole));
    pen.lineTo(last, y(bytes[end - 1]));
    pen.lineTo(last, HEIGHT);
    pen.closePath();
    pen.fillStyle = themeColour("spark");
    pen.fill();
    pen.strokeStyle = themeColour("spark-line");
    pen.lineWidth = 1;
    pen.stroke();
  }, [model, process, theme]);
  return <canvas class="spark" ref={canvas} style={{ width: `${WIDTH}px`, height: `${HEIGHT}px` }} aria-hidden="true" />;
}

export function commandText(model: Model, process: number): string {
  const { command, exe } = model.processes[process];
  return command.join(" ") || exe || "(unknown program)";
}

function fate(model: Model, process: number): string {
  const { born, born_s, ended_s, end_signal } = model.processes[process];
  const begin = process === 0 ? "" : `${born === "fork" ? "forked" : "started"} at ${secondsText(born_s)}`;
  const end = ended_s === null ? "end not seen" : `${end_signal ? `killed by ${end_signal}` : "ended"} at ${secondsText(ended_s)}`;
  return begin ? `${begin}, ${end}` : end;
}

// Of each figure the most of one process: they were not there at the same time, so no sum was ever seen.
function foldedFigures(model: Model, fold: Fold, selection: Selection): ProcessFigures {
  const all = fold.processes.map((process) => processFigures(model, process, selection)).filter(({ walked }) => walked);
  const most = (of: (figures: ProcessFigures) => number) => all.reduce((sofar, figures) => Math.max(sofar, of(figures)), 0);
  const growth = most(({ rss }) => rss.last - rss.first), last = most(({ rss }) => rss.last);
  const read = all.map(({ pss }) => pss.last).filter(({ bytes }) => bytes !== null);
  const pss = read.reduce((sofar, each) => ((each.bytes ?? 0) > (sofar.bytes ?? -1) ? each : sofar), { bytes: null, estimate: false } as Pss);
  return {
    process: fold.processes[0],
    edges: { from: 0, to: 0, first: -1, last: -1, peak: -1 },
    walked: all.length > 0,
    rss: { first: last - growth, last, peak: most(({ rss }) => rss.peak) },
    uss: { first: 0, last: most(({ uss }) => uss.last) },
    pss: { first: { bytes: null, estimate: false }, last: pss, peak: null },
  };
}

export function Processes({ model, scope, selection, theme, onScope }: {
  model: Model; scope: number; selection: Selection; theme: Theme; onScope: (scope: number) => void;
}) {
  const order = useMemo(() => treeOrder(model), [model]);
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const toggle = ({ key }: Fold) => setOpened((old) => new Set(old.has(key) ? [...old].filter((each) => each !== key) : [...old, key]));
  const isOpen = (fold: Fold) => opened.has(fold.key) || fold.processes.includes(scope); // who is chosen is in sight
  const rows: Row[] = useMemo(() => order.flatMap(({ process, depth, fold }): Row[] => {
    const row = (each: number): Row => ({ ...processFigures(model, each, selection), depth, fold: null });
    if (!fold) return [row(process)];
    return [{ ...foldedFigures(model, fold, selection), depth, fold }, ...(isOpen(fold) ? fold.processes.map(row) : [])];
  }), [model, order, selection, opened, scope]);
  const isOnly = model.processes.length === 1; // there is nothing to choose
  const name = (row: Row) => model.processes[row.process];
  const atMost = (row: Row, figure: ComponentChildren) => (row.fold && row.walked ? <span title="the most of one of them">≤ {figure}</span> : figure);
  const columns: Column<Row>[] = [
    { name: "process", cell: (row) => (
      <span class="line" style={{ paddingLeft: `${Math.min(row.depth, 12) * 14}px` }}>
        {row.fold
          ? <button type="button" class="link" aria-expanded={isOpen(row.fold)} title="the same command line but for numbers; each figure is the most of one of them">
              {isOpen(row.fold) ? `hide ${row.fold.processes.length}` : `+${row.fold.processes.length} more`} like it <span class="code">{commandText(model, row.process)}</span>
            </button>
          : <>
              <button type="button" class="link" disabled={isOnly} aria-pressed={isOnly ? undefined : scope === row.process} title={`${commandText(model, row.process)} · ${fate(model, row.process)}`}>
                <span class="pid">{name(row).pid}</span> <span class="code">{commandText(model, row.process)}</span>
              </button>
              {name(row).end_signal && <span class="badge problem">{name(row).end_signal}</span>}
              {!name(row).traced && <span class="badge" title="the library was not in it: causes from the kernel alone">no lines</span>}
            </>}
      </span>
    ) },
    { name: "RSS over time", lesser: true, cell: (row) => !row.fold && <Spark model={model} process={row.process} theme={theme} /> },
    { name: "growth", numeric: true, sort: (a, b) => b.rss.last - b.rss.first - (a.rss.last - a.rss.first), cell: (row) => atMost(row, row.walked ? <Growth bytes={row.rss.last - row.rss.first} name="growth" /> : <Size bytes={null} />) },
    { name: "RSS", title: "at the end of the interval, or of the process", numeric: true, sort: (a, b) => b.rss.last - a.rss.last, cell: (row) => atMost(row, <Size bytes={row.walked ? row.rss.last : null} name="rss" />) },
    { name: "PSS", numeric: true, lesser: true, sort: (a, b) => (b.pss.last.bytes ?? -1) - (a.pss.last.bytes ?? -1), cell: (row) => atMost(row, <Size bytes={row.pss.last.bytes} estimate={row.pss.last.estimate} name="pss" />) },
    { name: "USS", numeric: true, lesser: true, sort: (a, b) => b.uss.last - a.uss.last, cell: (row) => atMost(row, <Size bytes={row.walked ? row.uss.last : null} name="uss" />) },
    { name: "peak", title: "of RSS in the interval", numeric: true, lesser: true, sort: (a, b) => b.rss.peak - a.rss.peak, cell: (row) => atMost(row, <Size bytes={row.walked ? row.rss.peak : null} name="peak" />) },
  ];
  return (
    <List label="processes" testid="processes" columns={columns} rows={rows} keyOf={(row) => (row.fold ? -1 - row.fold.key : row.process)} empty="No process was recorded."
      chosen={scope === TREE || isOnly ? null : scope} onChoose={isOnly ? undefined : (row) => (row.fold ? toggle(row.fold) : onScope(row.process === scope ? TREE : row.process))} />
  );
}
