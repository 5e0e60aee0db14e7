// The figures of an interval. Of one process they equal those of `report --from --to --format json`.

import { type Model, type Series, SHARE_BY_KERNEL, SHARE_GIVEN_UP } from "./data";
import { bounds, boundsOfAll, type Edges, edgesOf, isThere, lastAt, type Selection, treeEdges } from "./interval";
import type { Timeline } from "./timeline_data";

export const TREE = -1; // the scope: all processes, else the number of one

export interface Pss {
  bytes: number | null;
  estimate: boolean;
}

export interface CauseFigures {
  cause: number;
  first: number;
  last: number;
  peak: number;
  atPeak: number;
  uss: number; // growth
}

export interface ProcessFigures {
  process: number;
  edges: Edges;
  walked: boolean;
  rss: { first: number; last: number; peak: number };
  uss: { first: number; last: number };
  pss: { first: Pss; last: Pss; peak: number | null };
}

export interface Account {
  scope: number;
  selection: Selection;
  from: number;
  to: number;
  members: number[]; // processes in scope
  edges: Edges[]; // of each process of the recording that is in scope
  peakTime: number | null; // when the scope had most
  rss: { first: number; last: number; peak: number };
  pss: { first: Pss; last: Pss; peak: number | null };
  uss: { first: number; last: number } | null;
  causes: CauseFigures[]; // largest growth first
  growth: number;
}

function pssState(state: number): Pss {
  return state === -1 ? { bytes: null, estimate: false } : { bytes: Math.floor(state / 2), estimate: state % 2 === 1 };
}

// As a report with this edge tells it: 0 before its first snapshot.
export function pssAt(model: Model, process: number, time: number): Pss {
  const begin = model.snapshotStart[process], end = model.snapshotStart[process + 1];
  if (begin === end) return { bytes: null, estimate: false };
  if (time < model.time[begin]) return { bytes: 0, estimate: false };
  const at = lastAt(model.pssTime, model.pssStart[process], model.pssStart[process + 1], time);
  return at < 0 ? { bytes: null, estimate: false } : pssState(model.pssState[at]);
}

export function familyPssAt(model: Model, time: number): Pss {
  const at = lastAt(model.familyPssTime, 0, model.familyPssTime.length, time);
  if (at < 0) return { bytes: null, estimate: false };
  const pss = pssState(model.familyPssState[at]);
  return { ...pss, estimate: pss.estimate || model.bounds.family_pss_thinned }; // of a moment before it
}

function pssPeak(model: Model, process: number, edges: Edges): number | null {
  let peak: number | null = null;
  const see = (bytes: number | null) => {
    if (bytes !== null && (peak === null || bytes > peak)) peak = bytes;
  };
  see(pssAt(model, process, edges.from).bytes);
  see(pssAt(model, process, edges.to).bytes);
  const begin = model.pssStart[process], end = model.pssStart[process + 1];
  const after = lastAt(model.pssTime, begin, end, edges.from);
  for (let i = after < 0 ? begin : after + 1; i < end && model.pssTime[i] <= edges.to; i++)
    if (model.pssRead[i] >= 0) see(model.pssRead[i]);
  const first = edges.first >= 0 ? edges.first : model.snapshotStart[process];
  for (let i = first; i <= edges.last; i++) see(pssAt(model, process, model.time[i]).bytes);
  return peak;
}

export function exclusiveAt(model: Model, snapshot: number): number {
  if (snapshot < 0) return 0;
  let sum = 0;
  for (let cause = 0; cause < model.causeCount; cause++) sum += model.exclusiveBytes[snapshot * model.causeCount + cause];
  return sum;
}

export function processFigures(model: Model, process: number, selection: Selection): ProcessFigures {
  const edges = edgesOf(model, process, selection);
  const rss = (snapshot: number) => (snapshot < 0 ? 0 : model.rss[snapshot]);
  return {
    process,
    edges,
    walked: model.snapshotStart[process + 1] > model.snapshotStart[process],
    rss: { first: rss(edges.first), last: rss(edges.last), peak: rss(edges.peak) },
    uss: { first: exclusiveAt(model, edges.first), last: exclusiveAt(model, edges.last) },
    pss: {
      first: pssAt(model, process, edges.from),
      last: pssAt(model, process, edges.to),
      peak: pssPeak(model, process, edges),
    },
  };
}

function causeFigures(model: Model, edges: Edges[]): CauseFigures[] {
  const figures = model.causes.map((_, cause) => ({ cause, first: 0, last: 0, peak: 0, atPeak: 0, uss: 0 }));
  const count = model.causeCount;
  const at = (values: Float64Array, snapshot: number, cause: number) =>
    snapshot < 0 ? 0 : values[snapshot * count + cause];
  for (const edge of edges) {
    for (const figure of figures) {
      figure.first += at(model.causeBytes, edge.first, figure.cause);
      figure.last += at(model.causeBytes, edge.last, figure.cause);
      figure.atPeak += at(model.causeBytes, edge.peak, figure.cause);
      figure.uss +=
        at(model.exclusiveBytes, edge.last, figure.cause) - at(model.exclusiveBytes, edge.first, figure.cause);
    }
  }
  return figures;
}

// Of a tree the peak of a cause is that of its sum.
function addPeaks(model: Model, figures: CauseFigures[], account: Account, timeline: Timeline): void {
  const count = model.causeCount;
  if (account.scope !== TREE) {
    const { first, last } = account.edges[0];
    const begin = first < 0 ? model.snapshotStart[account.scope] : first;
    for (let i = begin; i <= last; i++)
      for (const figure of figures) figure.peak = Math.max(figure.peak, model.causeBytes[i * count + figure.cause]);
    return;
  }
  const before = lastAt(timeline.time, 0, timeline.time.length, account.from);
  for (let i = Math.max(before, 0); i < timeline.time.length && timeline.time[i] <= account.to; i++)
    for (const figure of figures) figure.peak = Math.max(figure.peak, timeline.causes[figure.cause][i]);
}

// When all together had most, by snapshots.
function treePeak(timeline: Timeline, from: number, to: number): number | null {
  let peak = -1;
  const before = lastAt(timeline.time, 0, timeline.time.length, from);
  for (let i = Math.max(before, 0); i < timeline.time.length && timeline.time[i] <= to; i++)
    if (peak < 0 || timeline.rss[i] > timeline.rss[peak]) peak = i;
  return peak < 0 ? null : Math.max(timeline.time[peak], from);
}

export function accountOf(model: Model, scope: number, selection: Selection, timeline: Timeline): Account {
  const { from, to } = (scope === TREE ? boundsOfAll : bounds)(model, selection);
  const members = scope === TREE ? model.processes.map((_, i) => i) : [scope];
  // Of all together what was there at a time counts, of one process what it had at its own end.
  const edges = members.map((process) =>
    scope === TREE ? treeEdges(model, process, from, to) : edgesOf(model, process, selection),
  );
  const account: Account = {
    scope, selection, from, to, members, edges, peakTime: null,
    rss: { first: 0, last: 0, peak: 0 },
    pss: { first: { bytes: null, estimate: false }, last: { bytes: null, estimate: false }, peak: null },
    uss: null, causes: [], growth: 0,
  };
  if (scope === TREE) {
    account.peakTime = treePeak(timeline, from, to);
    members.forEach((process, i) => {
      const time = account.peakTime ?? -1;
      edges[i].peak = isThere(model, process, time)
        ? lastAt(model.time, model.snapshotStart[process], model.snapshotStart[process + 1], time)
        : -1;
    });
    const rss = (which: "first" | "last" | "peak") =>
      edges.reduce((sum, edge) => sum + (edge[which] < 0 ? 0 : model.rss[edge[which]]), 0);
    account.rss = { first: rss("first"), last: rss("last"), peak: rss("peak") };
    account.pss = { first: familyPssAt(model, from), last: familyPssAt(model, to), peak: null };
    if (selection.kind === "whole") {
      const family = model.report.family;
      account.pss.first.bytes = family.pss.first;
      account.pss.last.bytes = family.pss.last;
      account.pss.peak = family.pss.peak;
    }
  } else {
    const figures = processFigures(model, scope, selection);
    account.from = figures.edges.from;
    account.to = figures.edges.to;
    account.rss = figures.rss;
    account.pss = figures.pss;
    account.uss = figures.uss;
    account.peakTime = figures.edges.peak < 0 ? null : model.time[figures.edges.peak];
  }
  const causes = causeFigures(model, edges);
  addPeaks(model, causes, account, timeline);
  account.causes = causes.filter((figure) => figure.first || figure.last || figure.peak || figure.atPeak);
  account.causes.sort((a, b) => b.last - b.first - (a.last - a.first) || b.last - a.last);
  account.growth = account.causes.reduce((sum, figure) => sum + figure.last - figure.first, 0);
  return account;
}

export type Metric = "growth" | "shrinkage" | "resident" | "peak";
export type By = "held" | "touched" | "given up" | "copied";

// A part of the memory in scope: what one stack holds, touched or copied. Rows of the tables and of the icicle.
export interface Parts {
  count: number;
  cause: Uint8Array;
  stack: Uint32Array;
  mapping: Int32Array; // string, -1: nameless
  kind: Uint8Array;
  made: Int32Array; // of copies: the stack that made the memory; else -1
  growth: Float64Array;
  resident: Float64Array;
  peak: Float64Array;
  variance: Float64Array;
}

export const NAMED = 0, SMALLER_SITES = 1, NOT_KNOWN = 2, BY_KERNEL = 3;

class PartList {
  private readonly parts: Parts;

  constructor(most: number) {
    this.parts = {
      count: 0,
      cause: new Uint8Array(most), stack: new Uint32Array(most), mapping: new Int32Array(most), kind: new Uint8Array(most),
      made: new Int32Array(most), growth: new Float64Array(most), resident: new Float64Array(most),
      peak: new Float64Array(most), variance: new Float64Array(most),
    };
  }

  add(cause: number, stack: number, mapping: number, kind: number, growth: number, resident: number, peak: number,
    variance: number, made = -1) {
    if (!growth && !resident && !peak) return;
    const { parts } = this, at = parts.count++;
    parts.cause[at] = cause;
    parts.stack[at] = stack;
    parts.mapping[at] = mapping;
    parts.kind[at] = kind;
    parts.made[at] = made;
    parts.growth[at] = growth;
    parts.resident[at] = resident;
    parts.peak[at] = peak;
    parts.variance[at] = variance;
  }

  done(): Parts {
    return this.parts;
  }
}

// What a row held at a snapshot of its process (counted from its first).
function rowAt(series: Series, row: number, snapshot: number): number {
  if (snapshot < 0) return -1;
  let low = series.start[row], high = series.start[row + 1];
  const begin = low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (series.at[middle] <= snapshot) low = middle + 1;
    else high = middle;
  }
  return low > begin ? low - 1 : -1;
}

interface RowFigures {
  growth: number;
  resident: number;
  peak: number;
  variance: number;
}

function rowFigures(series: Series, row: number, edges: Edges, base: number): RowFigures {
  const first = rowAt(series, row, edges.first - base), last = rowAt(series, row, edges.last - base);
  const peak = rowAt(series, row, edges.peak - base);
  const bytes = (at: number) => (at < 0 ? 0 : series.bytes[at]);
  const variance = (at: number) => (at < 0 ? 0 : series.variance[at]);
  return {
    growth: bytes(last) - bytes(first),
    resident: bytes(last),
    peak: bytes(peak),
    variance: variance(first) + variance(last),
  };
}

function edgesByProcess(model: Model, account: Account): (Edges | undefined)[] {
  const edges: (Edges | undefined)[] = new Array(model.processes.length);
  account.members.forEach((process, i) => { edges[process] = account.edges[i]; });
  return edges;
}

// `cause`: this one alone; -1: all.
export function partsOf(model: Model, account: Account, by: By, cause: number): Parts {
  if (by === "copied") return copiedParts(model, account);
  const edges = edgesByProcess(model, account);
  const list = new PartList(model.siteProcess.length + (by === "held" ? 0 : model.shareSite.length));
  if (by === "given up") cause = model.causes.findIndex((each) => each.slug === "lazy_free");
  const left = by !== "held" ? new Map<number, RowFigures>() : null;
  for (let row = 0; row < model.siteProcess.length; row++) {
    const process = model.siteProcess[row];
    const edge = edges[process];
    if (!edge || (cause >= 0 && model.siteCause[row] !== cause)) continue;
    const figures = rowFigures(model.sites, row, edge, model.snapshotStart[process]);
    const others = (model.siteFlags[row] & 2) !== 0;
    if (left && !others) {
      left.set(row, figures);
      continue;
    }
    list.add(model.siteCause[row], model.siteStack[row], model.siteMapping[row] - 1, others ? SMALLER_SITES : NAMED,
      figures.growth, figures.resident, figures.peak, figures.variance);
  }
  if (left) addShares(model, edges, left, by === "given up", list);
  return list.done();
}

// Who touched these sites, or gave them up.
function addShares(
  model: Model, edges: (Edges | undefined)[], left: Map<number, RowFigures>, givenUp: boolean, list: PartList,
): void {
  for (let row = 0; row < model.shareSite.length; row++) {
    const site = model.shareSite[row], rest = left.get(site);
    if (!rest || (model.shareKind[row] === SHARE_GIVEN_UP) !== givenUp) continue;
    const process = model.siteProcess[site];
    const figures = rowFigures(model.shares, row, edges[process] as Edges, model.snapshotStart[process]);
    const kernel = model.shareKind[row] === SHARE_BY_KERNEL;
    list.add(model.siteCause[site], model.shareStack[row], model.siteMapping[site] - 1, kernel ? BY_KERNEL : NAMED,
      figures.growth, figures.resident, figures.peak, figures.variance);
    rest.growth -= figures.growth;
    rest.resident -= figures.resident;
    rest.peak -= figures.peak;
  }
  for (const [site, rest] of left)
    list.add(model.siteCause[site], 0, model.siteMapping[site] - 1, NOT_KNOWN, rest.growth, rest.resident, rest.peak, 0);
}

// Who copied, as analyzer/report/view/cow_view.cc fits it: of what was made at one place the sampled writes stand for all of
// it where they can; else the rest stays without a line.
const FITTING_ERRORS = 3;

function copiedParts(model: Model, account: Account): Parts {
  const edges = edgesByProcess(model, account);
  interface Group { process: number; made: number; copied: number; written: Map<number, { bytes: number; variance: number }> }
  const groups = new Map<string, Group>();
  for (let i = 0; i < model.copyTime.length; i++) {
    const process = model.copyProcess[i], edge = edges[process];
    if (!edge || !(model.copyTime[i] > edge.from && model.copyTime[i] <= edge.to)) continue;
    const key = `${process} ${model.copyMade[i]} ${model.copyFlags[i]}`;
    let group = groups.get(key);
    if (!group) groups.set(key, (group = { process, made: model.copyMade[i], copied: 0, written: new Map() }));
    group.copied += model.copyBytes[i];
    if (model.copyWritten[i] === 0) continue;
    const estimate = group.written.get(model.copyWritten[i]) ?? { bytes: 0, variance: 0 };
    estimate.bytes += model.copyBytes[i];
    estimate.variance += model.copyVariance[i];
    group.written.set(model.copyWritten[i], estimate);
  }
  const cow = model.causes.findIndex((cause) => cause.slug === "fork_cow");
  const list = new PartList(model.copyTime.length + groups.size);
  for (const group of groups.values()) addCopies(group, cow, list);
  return list.done();
}

function addCopies(
  group: { made: number; copied: number; written: Map<number, { bytes: number; variance: number }> },
  cow: number, list: PartList,
): void {
  let seen = 0, variance = 0;
  for (const estimate of group.written.values()) {
    seen += estimate.bytes;
    variance += estimate.variance;
  }
  const fits = seen > 0 && group.copied - seen <= FITTING_ERRORS * Math.sqrt(variance);
  const scale = fits ? group.copied / seen : 1;
  let rest = group.copied;
  const rows: { stack: number; bytes: number; variance: number }[] = [];
  for (const [stack, estimate] of group.written) {
    const bytes = Math.floor(estimate.bytes * scale);
    const share = estimate.bytes / seen, others = 1 - share;
    const own = others * others * estimate.variance + share * share * (variance - estimate.variance);
    rows.push({ stack, bytes, variance: fits ? scale * scale * Math.max(own, 0) : estimate.variance });
    rest -= bytes;
  }
  if (fits) rows.reduce((most, row) => (row.bytes > most.bytes ? row : most)).bytes += rest;
  else if (rest !== 0) list.add(cow, 0, -1, NOT_KNOWN, rest, rest, rest, 0, group.made);
  for (const row of rows) list.add(cow, row.stack, -1, NAMED, row.bytes, row.bytes, row.bytes, row.variance, group.made);
}

export function copiedBytes(model: Model, account: Account): number {
  let sum = 0;
  const edges = edgesByProcess(model, account);
  for (let i = 0; i < model.copyTime.length; i++) {
    const edge = edges[model.copyProcess[i]];
    if (edge && model.copyTime[i] > edge.from && model.copyTime[i] <= edge.to) sum += model.copyBytes[i];
  }
  return sum;
}


