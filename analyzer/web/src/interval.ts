// Which stretch of the recording is shown, and which snapshots of a process stand at its edges: as
// analyzer/report/view/interval.cc and view.cc take them for `report --from --to`.

import type { Model } from "./data";

export type Selection =
  | { kind: "whole" }
  | { kind: "phase"; phase: number }
  | { kind: "range"; from: number; to: number };

export interface Edges {
  from: number; // seconds
  to: number;
  first: number; // snapshots, -1: none was made by then
  last: number;
  peak: number;
}

// A look at all processes takes some milliseconds, and the collector has to wait for a core.
const LOOK_NEAR_EDGE_S = 0.25;
const ASKED_BEFORE_S = 10;
// The kernel says in hundredths of a second when a process began, rounded down.
const BORN_TICK_S = 0.01;

// The last of values[begin, end), which are sorted, that is not above `value`; -1: none.
export function lastAt(values: Float64Array, begin: number, end: number, value: number): number {
  let low = begin, high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low > begin ? low - 1 : -1;
}

export function bounds(model: Model, selection: Selection): { from: number; to: number } {
  if (selection.kind === "range") return { from: selection.from, to: selection.to };
  if (selection.kind === "phase") {
    const phase = model.report.phases[selection.phase];
    return { from: phase.from_s, to: phase.to_s };
  }
  return { from: model.report.interval.from_s, to: model.report.interval.to_s };
}

const ASKED_FOR = 4; // of snapshotFlags

// Of the snapshots around the edge of a phase (of the process with that pid) the one for which the process waited there,
// of other processes the nearer one, if that came after the edge, which has asked for it. What the program asked for
// itself before the edge is what it wants to begin or to end with. One after `latest`, the interval's end, shows what the
// interval did.
function lookedAt(model: Model, process: number, edge: number, pid: number | undefined, latest = Infinity): number {
  const info = model.processes[process];
  if (info.born_s + BORN_TICK_S > edge) return edge; // by the edge it had nothing worth naming
  if (info.pid === pid && info.sized_edges_s.includes(edge)) return edge; // it gave its size there
  const begin = model.snapshotStart[process], end = model.snapshotStart[process + 1];
  const before = lastAt(model.time, begin, end, edge);
  const after = before < 0 ? begin : before + 1;
  if (after >= end || model.time[after] > edge + LOOK_NEAR_EDGE_S) return edge;
  if (before < 0) return model.time[after];
  const waited = info.pid === pid && (model.snapshotFlags[after] & ASKED_FOR) !== 0;
  const nearer = model.time[after] - edge < edge - model.time[before];
  const asked = info.asked_s.some((time) => time <= edge && time > edge - ASKED_BEFORE_S);
  return (waited || nearer) && model.time[after] <= latest && !asked ? model.time[after] : edge;
}

export function intervalOf(model: Model, process: number, selection: Selection): { from: number; to: number } {
  let { from, to } = bounds(model, selection);
  if (selection.kind === "phase") {
    const pid = model.report.phases[selection.phase].pid;
    from = lookedAt(model, process, from, pid, to);
    to = lookedAt(model, process, to, pid);
  }
  const teardown = model.processes[process].teardown_s;
  if (selection.kind !== "range" && teardown !== null) to = Math.min(to, teardown);
  return { from: Math.min(from, to), to };
}

// For sums over processes: up to the last of the snapshots that the edges of a phase asked for.
export function boundsOfAll(model: Model, selection: Selection): { from: number; to: number } {
  let { from, to } = bounds(model, selection);
  if (selection.kind === "phase") {
    const edges = { from, to }, pid = model.report.phases[selection.phase].pid;
    for (let process = 0; process < model.processes.length; process++) {
      from = Math.max(from, lookedAt(model, process, edges.from, pid, edges.to));
      to = Math.max(to, lookedAt(model, process, edges.to, pid));
    }
  }
  return { from: Math.min(from, to), to };
}

export function edgesOf(model: Model, process: number, selection: Selection): Edges {
  const { from, to } = intervalOf(model, process, selection);
  const begin = model.snapshotStart[process], end = model.snapshotStart[process + 1];
  const first = lastAt(model.time, begin, end, from), last = lastAt(model.time, begin, end, to);
  let peak = first;
  for (let i = first < 0 ? begin : first + 1; i <= last; i++)
    if (peak < 0 || model.rss[i] > model.rss[peak]) peak = i;
  return { from, to, first, last, peak };
}

// Of a process among others: what was there at both ends, as the sums over processes of a report count it.
export function treeEdges(model: Model, process: number, from: number, to: number): Edges {
  const begin = model.snapshotStart[process], end = model.snapshotStart[process + 1];
  const at = (time: number) => (isThere(model, process, time) ? lastAt(model.time, begin, end, time) : -1);
  return { from, to, first: at(from), last: at(to), peak: -1 };
}

export function isThere(model: Model, process: number, time: number): boolean {
  const info = model.processes[process];
  return info.born_s <= time && (info.there_until_s === null || info.there_until_s >= time);
}
