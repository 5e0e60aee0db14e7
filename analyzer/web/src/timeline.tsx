// The stacked timeline: areas by cause, what the kernel says as lines above them, and what happened below. Dragging, or
// Shift and the arrow keys, chooses the interval that the rest of the page is about.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { type Account, TREE } from "./account";
import { causeColour, hatch, STACKING, themeColour, type Theme } from "./colours";
import type { Model } from "./data";
import { secondsText, sizeText } from "./format";
import { lastAt, type Selection } from "./interval";
import { usePrinting } from "./list";
import { drawnMoments, pixelPoints, type Timeline, treeRss } from "./timeline_data";

interface Properties {
  model: Model;
  timeline: Timeline;
  account: Account;
  theme: Theme;
  cause: number;
  cursor: number | null;
  onSelect: (selection: Selection) => void;
  onCursor: (time: number | null) => void;
}

interface Line {
  time: ArrayLike<number>;
  bytes: ArrayLike<number>; // NaN: not known
  colour: string;
  dash: number[];
  width: number;
}

// From when on the recording knows nothing of the scope: of one process at least.
export function brokenOff(model: Model, scope: number): number | null {
  const processes = scope === TREE ? model.processes : [model.processes[scope]];
  const times = processes.flatMap((process) => (process.broken_off_s === null ? [] : [process.broken_off_s]));
  return times.length > 0 ? Math.min(...times) : null;
}

// Until when there was anything to see.
function endOf(model: Model, scope: number): number {
  const broken = brokenOff(model, scope);
  if (broken !== null) return broken;
  if (scope === TREE) return model.report.interval.to_s;
  const process = model.processes[scope], last = model.snapshotStart[scope + 1] - 1;
  const looked = last >= model.snapshotStart[scope] ? model.time[last] : 0;
  return Math.max(process.ended_s ?? model.report.interval.to_s, looked);
}

// With the teardown, which the whole recording ends before.
function lastMoment(model: Model): number {
  let end = Math.max(model.report.interval.to_s, 1e-6);
  for (let process = 0; process < model.processes.length; process++) end = Math.max(end, endOf(model, process));
  return end;
}

// Where the axis of time ends, of whatever scope.
export function axisEnd(model: Model): number {
  return lastMoment(model) * 1.005;
}

interface Stretch {
  from: number;
  to: number;
}

// Since when all that are there have begun to free what they kept: figures of the whole recording leave it out.
export function teardownOf(model: Model, scope: number): Stretch | null {
  const members = scope === TREE ? model.processes : [model.processes[scope]];
  let from = 0, to = 0;
  for (const { teardown_s, ended_s } of members) {
    if (ended_s === null) return null;
    from = Math.max(from, teardown_s ?? ended_s);
    to = Math.max(to, ended_s);
  }
  return from < to ? { from, to } : null;
}

const SHADE = 0.3; // as the key of the legend
// Of time, that are told apart in one drawing: each two pixels or so, and where many processes come and go so wide that
// several of them fall into it.
function stretchesOf(model: Model, scope: number): number {
  const STRETCHES = 400, LEAST = 120, MANY = 60;
  const many = scope === TREE && model.processes.length > MANY;
  return many ? Math.min(STRETCHES, Math.max(LEAST, model.processes.length / 2)) : STRETCHES;
}

interface Stacked {
  data: uPlot.AlignedData;
  shown: number[]; // causes, the last one lowest
}

function stackedData(model: Model, scope: number, timeline: Timeline, until: number): Stacked {
  const drawn = drawnMoments(timeline, stretchesOf(model, scope));
  const order = STACKING.map((slug) => model.causes.findIndex((cause) => cause.slug === slug)).filter((i) => i >= 0);
  const shown = order.filter((cause) => timeline.causes[cause].some((bytes) => bytes > 0));
  const { time } = drawn, length = time.length, ends = length > 0 && time[length - 1] < until;
  const sum = new Float64Array(length);
  const columns = shown.map((cause) => {
    const column = drawn.at.map((at, i) => (sum[i] += timeline.causes[cause][at]));
    if (ends) column.push(column[length - 1]);
    return column;
  });
  if (ends) time.push(until);
  return { data: [time, ...columns.reverse()] as uPlot.AlignedData, shown: shown.reverse() };
}

// How much time one step of the areas stands for; 0: each snapshot has its own.
export function stepSeconds(model: Model, scope: number, timeline: Timeline): number {
  return drawnMoments(timeline, stretchesOf(model, scope)).width;
}

function pollLine(model: Model, process: number, colour: string): Line {
  const begin = model.pollStart[process], end = model.pollStart[process + 1];
  return {
    time: model.pollTime.subarray(begin, end), bytes: model.pollRss.subarray(begin, end), colour, dash: [], width: 1.5,
  };
}

function treePollLine(model: Model, colour: string): Line {
  const sums = treeRss(model), drawn = drawnMoments(sums, stretchesOf(model, TREE));
  return { time: drawn.time, bytes: drawn.at.map((at) => sums.rss[at]), colour, dash: [], width: 1.5 };
}

function known(state: Float64Array): Float64Array {
  return state.map((value) => (value === -1 ? Number.NaN : Math.floor(value / 2)));
}

function pssLine(model: Model, scope: number, colour: string): Line {
  const [begin, end] = scope === TREE ? [0, 0] : [model.pssStart[scope], model.pssStart[scope + 1]];
  const time = scope === TREE ? model.familyPssTime : model.pssTime.subarray(begin, end);
  const state = scope === TREE ? model.familyPssState : model.pssState.subarray(begin, end);
  const bytes = known(state), drawn = drawnMoments({ time, rss: bytes }, stretchesOf(model, scope));
  return { time: drawn.time, bytes: drawn.at.map((at) => bytes[at]), colour, dash: [2, 3], width: 1.5 };
}

export interface Event {
  time: number;
  text: string;
  kind: "fork" | "start" | "exit" | "kill" | "mark";
}

export function eventsOf(model: Model, scope: number): Event[] {
  const events: Event[] = [];
  const { exit } = model.report.recording;
  model.processes.forEach((process, i) => {
    const own = scope === TREE || i === scope || process.parent === model.processes[scope].pid;
    if (!own) return;
    const forked = process.born === "fork";
    if (i > 0) events.push({ time: process.born_s, kind: forked ? "fork" : "start", text: `${process.pid} ${forked ? "forked" : "started"}` });
    if (process.ended_s === null) return;
    const signal = process.end_signal || (i === 0 && exit.signal) || "";
    const killed = signal !== "";
    const memory = model.oomKills.some((kill) => kill.pid === process.pid) || (i === 0 && exit.oom_killed);
    events.push({
      time: process.ended_s, kind: killed ? "kill" : "exit",
      text: killed ? `${process.pid} ended by ${signal}${memory ? ", for lack of memory" : ""}` : `${process.pid} ended`,
    });
  });
  for (const mark of model.report.marks) events.push({ time: mark.at_s, kind: "mark", text: mark.name });
  return events.sort((a, b) => a.time - b.time);
}

function drawLine(u: uPlot, line: Line, steps: boolean): void {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.beginPath();
  let pen = false, y = 0;
  for (const point of pixelPoints(line.time, line.bytes, 0, line.time.length, (time) => u.valToPos(time, "x", true))) {
    if (Number.isNaN(point.bytes)) {
      pen = false;
      continue;
    }
    const next = u.valToPos(point.bytes, "y", true);
    if (!pen) ctx.moveTo(point.x, next);
    else {
      if (steps) ctx.lineTo(point.x, y);
      ctx.lineTo(point.x, next);
    }
    pen = true;
    y = next;
  }
  // On a light ground of its own, so that it is seen on every colour.
  ctx.strokeStyle = themeColour("card");
  ctx.lineWidth = (line.width + 2) * ratio;
  ctx.globalAlpha = 0.7;
  ctx.stroke();
  ctx.globalAlpha = 1;
  ctx.strokeStyle = line.colour;
  ctx.lineWidth = line.width * ratio;
  ctx.setLineDash(line.dash.map((part) => part * ratio));
  ctx.stroke();
  ctx.restore();
}

// Text that can be read on any cause.
function haloed(ctx: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  ctx.strokeStyle = themeColour("card");
  ctx.lineWidth = 3 * uPlot.pxRatio;
  ctx.setLineDash([]);
  ctx.strokeText(text, x, y);
  ctx.fillText(text, x, y);
}

function drawLevel(u: uPlot, bytes: number, colour: string, dash: number[], text: string, side: "left" | "right"): void {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio, y = u.valToPos(bytes, "y", true);
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 1.25 * ratio;
  ctx.setLineDash(dash.map((part) => part * ratio));
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `${11 * ratio}px ui-sans-serif, system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = side;
  haloed(ctx, text, side === "left" ? bbox.left + 6 * ratio : bbox.left + bbox.width - 10 * ratio, y - 2 * ratio);
  ctx.restore();
}

function drawPhases(u: uPlot, model: Model): void {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = themeColour("faint");
  ctx.setLineDash([2 * ratio, 3 * ratio]);
  for (const phase of model.report.phases.slice(0, 500)) {
    for (const edge of [phase.from_s, phase.to_s]) {
      const x = Math.round(u.valToPos(edge, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
  }
  ctx.restore();
}

const NAMED_MARKS = 12, NAMED_WIDTH = 450; // more, or in less room, would cover each other

const EVENTS_APART = 3;
const EVENT_COLOURS = { fork: "event-fork", start: "event-fork", exit: "faint", kill: "problem", mark: "accent" };

function drawEvents(u: uPlot, events: Event[]): void {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio, bottom = bbox.top + bbox.height;
  const marks = events.filter((event) => event.kind === "mark");
  ctx.save();
  ctx.font = `${11 * ratio}px ui-sans-serif, system-ui, sans-serif`;
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  marks.slice(0, marks.length <= NAMED_MARKS && bbox.width > NAMED_WIDTH * ratio ? NAMED_MARKS : 0).forEach((mark, i) => {
    ctx.fillStyle = themeColour("accent");
    const name = mark.text.length > 24 ? `${mark.text.slice(0, 23)}…` : mark.text;
    const line = u.valToPos(mark.time, "x", true), y = bbox.top + (8 + (i % 3) * 13) * ratio;
    const fits = line + 4 * ratio + ctx.measureText(name).width <= bbox.left + bbox.width;
    ctx.textAlign = fits ? "left" : "right";
    const x = line + (fits ? 4 : -4) * ratio;
    haloed(ctx, name, x, y);
  });
  const drawn: Partial<Record<Event["kind"], number>> = {}; // where the last one of its kind is
  for (const event of events) {
    const x = u.valToPos(event.time, "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    if (x - (drawn[event.kind] ?? -Infinity) < EVENTS_APART * ratio) continue; // of hundreds of short processes one shape, not a bar
    drawn[event.kind] = x;
    ctx.strokeStyle = ctx.fillStyle = themeColour(EVENT_COLOURS[event.kind]);
    ctx.lineWidth = (event.kind === "kill" ? 2 : 1) * ratio;
    ctx.beginPath();
    if (event.kind === "kill" || event.kind === "mark") {
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bottom);
      ctx.stroke();
    }
    if (event.kind === "mark") continue;
    const size = (event.kind === "kill" ? 5 : 4) * ratio, up = event.kind === "fork" || event.kind === "start";
    ctx.beginPath();
    ctx.moveTo(x - size, up ? bottom : bottom - size * 1.6);
    ctx.lineTo(x + size, up ? bottom : bottom - size * 1.6);
    ctx.lineTo(x, up ? bottom - size * 1.6 : bottom);
    ctx.fill();
  }
  ctx.restore();
}

// Times without a look at the pages: the last one is older, so what is drawn there is told from polls and events.
function drawEstimates(u: uPlot, timeline: Timeline, unseen: Stretch[]): void {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio, height = 4 * ratio;
  ctx.save();
  ctx.fillStyle = hatch(ctx, themeColour("muted"), ratio);
  const mark = (from: number, to: number) => {
    const left = u.valToPos(from, "x", true);
    ctx.fillRect(left, bbox.top, Math.max(u.valToPos(to, "x", true) - left, 2 * ratio), height);
  };
  for (let i = 0; i < timeline.time.length; i++) {
    if (!timeline.estimate[i]) continue;
    let end = i + 1;
    while (end < timeline.time.length && timeline.estimate[end]) end++;
    mark(timeline.time[i], timeline.time[Math.min(end, timeline.time.length - 1)]);
    i = end - 1;
  }
  for (const { from, to } of unseen) mark(from, to);
  ctx.restore();
}

// What is drawn differs from what was there: the last snapshot before the end, or before the teardown, is older.
function unseenOf(model: Model, scope: number): Stretch[] {
  const members = scope === TREE ? model.processes : [model.processes[scope]];
  const all = members.flatMap(({ unseen_s, teardown_s, ended_s }) => {
    const to = teardown_s ?? ended_s;
    return unseen_s && to !== null ? [{ from: to - unseen_s, to }] : [];
  });
  const apart: Stretch[] = [];
  for (const each of all.sort((a, b) => a.from - b.from)) {
    const last = apart[apart.length - 1];
    if (last && each.from <= last.to) last.to = Math.max(last.to, each.to);
    else apart.push(each);
  }
  return apart;
}

// What was polled, below the areas: where it is seen, RSS was higher than what the last snapshot tells the causes of.
function drawUnseen(u: uPlot, line: Line, steps: boolean): void {
  const { ctx, bbox } = u, bottom = bbox.top + bbox.height;
  if (line.time.length === 0) return;
  ctx.save();
  ctx.beginPath();
  ctx.moveTo(u.valToPos(line.time[0], "x", true), bottom);
  let y = bottom;
  for (const { x, bytes } of pixelPoints(line.time, line.bytes, 0, line.time.length, (time) => u.valToPos(time, "x", true))) {
    if (steps) ctx.lineTo(x, y);
    y = u.valToPos(bytes, "y", true);
    ctx.lineTo(x, y);
  }
  ctx.lineTo(u.valToPos(line.time[line.time.length - 1], "x", true), bottom);
  ctx.fillStyle = hatch(ctx, themeColour("faint"), uPlot.pxRatio);
  ctx.fill();
  ctx.restore();
}

// A stretch of time that no figure is about, with its name where there is room.
function drawShade(u: uPlot, { from, to }: Stretch, text: string): void {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio;
  const left = u.valToPos(from, "x", true), right = Math.min(u.valToPos(to, "x", true), bbox.left + bbox.width);
  if (left >= right) return;
  ctx.save();
  ctx.globalAlpha = SHADE;
  ctx.fillStyle = themeColour("shade");
  ctx.fillRect(left, bbox.top, right - left, bbox.height);
  ctx.globalAlpha = 1;
  ctx.fillStyle = themeColour("ink");
  ctx.font = `${11 * ratio}px ui-sans-serif, system-ui, sans-serif`;
  ctx.textBaseline = "top";
  ctx.textAlign = "right";
  if (right - left > ctx.measureText(text).width + 12 * ratio) haloed(ctx, text, right - 6 * ratio, bbox.top + bbox.height / 2);
  ctx.restore();
}

function axisSizes(_u: uPlot, splits: number[]): string[] {
  const GIB = 2 ** 30;
  return splits.map((bytes) => (bytes >= GIB ? `${+(bytes / GIB).toFixed(2)} GiB` : sizeText(bytes).replace(".0 ", " ")));
}

// Round in powers of two, as the labels are.
function axisSplits(_u: uPlot, _axis: number, low: number, high: number): number[] {
  let step = 2 ** Math.ceil(Math.log2(Math.max(high - low, 1) / 6));
  if (step < 1) step = 1;
  const splits: number[] = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) splits.push(at);
  return splits;
}

const NAMED_EVENTS = 4;

// What happened around a moment: as near as a pointer can tell.
export function eventsAt(events: Event[], time: number, whole: number): string {
  const near = events.filter((event) => Math.abs(event.time - time) <= whole / 150);
  const few = near.length <= NAMED_EVENTS;
  const named = near.filter(({ kind }) => few || kind === "kill" || kind === "mark");
  const texts = named.slice(0, NAMED_EVENTS).map((event) => (event.kind === "mark" ? `mark ${event.text}` : event.text));
  if (named.length > NAMED_EVENTS) texts.push(`${named.length - NAMED_EVENTS} more kills or marks`);
  for (const [kind, word] of [["fork", "forked"], ["start", "started"], ["exit", "ended"]]) {
    const count = few ? 0 : near.filter((event) => event.kind === kind).length;
    if (count > 0) texts.push(`${count} ${count === 1 ? "process" : "processes"} ${word}`);
  }
  return texts.join(", ");
}

export function TimelineChart(properties: Properties) {
  const { model, timeline, account, theme, cause, onSelect, onCursor } = properties;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(properties);
  latest.current = properties;
  const until = endOf(model, account.scope), broken = brokenOff(model, account.scope);
  const teardown = useMemo(() => teardownOf(model, account.scope), [model, account.scope]);
  const unseen = useMemo(() => unseenOf(model, account.scope), [model, account.scope]);
  const { data, shown } = useMemo(() => stackedData(model, account.scope, timeline, until), [model, account.scope, timeline, until]);
  const events = useMemo(() => eventsOf(model, account.scope), [model, account.scope]);

  const printing = usePrinting();
  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    const ofTree = account.scope === TREE, ink = themeColour("ink");
    const polled = ofTree ? treePollLine(model, ink) : pollLine(model, account.scope, ink);
    const pss = pssLine(model, account.scope, themeColour("pss"));
    const highWater = ofTree ? null : model.processes[account.scope].high_water;
    const limit = model.report.family.cgroup.limit;
    const most = [data[1] ?? [], polled.bytes].reduce((sofar, values) => Math.max(sofar, largest(values)), Math.max(1, highWater ?? 0));
    const shownLimit = limit !== null && limit <= most * 2 ? limit : null;
    const top = Math.max(most, shownLimit ?? 0) * 1.06;
    const end = axisEnd(model);
    const options: uPlot.Options = {
      width: element.clientWidth,
      height: Math.max(220, Math.min(420, Math.round(window.innerHeight * 0.42))),
      legend: { show: false },
      padding: [10, 8, 0, 0],
      scales: {
        x: { time: false, range: () => [0, end] },
        y: { range: () => [0, top] },
      },
      series: [
        {},
        ...shown.map((index): uPlot.Series => {
          const colour = causeColour(model.causes[index].slug, theme);
          const unknown = ["not_looked_at", "unknown"].includes(model.causes[index].slug);
          const faded = cause >= 0 && cause !== index;
          return {
            points: { show: false },
            stroke: faded ? `${colour}55` : colour,
            width: 0.5,
            // Above the others lies what is not faded, so fading is done by the colour alone.
            fill: (u: uPlot) => (unknown ? hatch(u.ctx, colour, uPlot.pxRatio) : faded ? blended(colour, theme) : colour),
            paths: uPlot.paths.stepped?.({ align: 1 }),
          } as uPlot.Series;
        }),
      ],
      axes: [
        { stroke: themeColour("muted"), grid: { show: false }, ticks: { stroke: themeColour("line"), size: 4 }, font: AXIS_FONT, size: 30, values: axisTimes, incrs: TIME_STEPS, space: 64 },
        { stroke: themeColour("muted"), grid: { stroke: themeColour("line"), width: 1 }, ticks: { show: false }, font: AXIS_FONT, size: 66, splits: axisSplits, values: axisSizes },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: LEAST_DRAGGED } },
      hooks: {
        drawAxes: [(u) => drawUnseen(u, polled, ofTree)], // before the areas
        draw: [
          (u) => {
            if (broken !== null) drawShade(u, { from: broken, to: end }, "not recorded");
            if (teardown) drawShade(u, teardown, "teardown");
            drawPhases(u, model);
            if (latest.current.cause < 0) drawLine(u, polled, ofTree);
            drawLine(u, pss, true);
            if (highWater) drawLevel(u, highWater, themeColour("muted"), [6, 3], `VmHWM ${sizeText(highWater)}`, "left");
            if (shownLimit !== null) drawLevel(u, shownLimit, themeColour("problem"), [8, 4], `memory limit ${sizeText(shownLimit)}`, "right");
            drawEvents(u, events);
            drawEstimates(u, timeline, unseen);
          },
        ],
        setSize: [(u) => showSelection(u, latest.current.account)], // uPlot has scaled it by then, and its axes are no wider
        setSelect: [
          (u) => {
            if (u.select.width < LEAST_DRAGGED) return;
            const from = snapped(latest.current, u.posToVal(u.select.left, "x"));
            const to = snapped(latest.current, u.posToVal(u.select.left + u.select.width, "x"));
            if (from < to) onSelect({ kind: "range", from, to });
          },
        ],
        setCursor: [
          (u) => {
            const { left } = u.cursor;
            onCursor(left === undefined || left === null || left < 0 ? null : Math.max(0, u.posToVal(left, "x")));
          },
        ],
      },
    };
    const chart = new uPlot(options, data, element);
    plot.current = chart;
    showSelection(chart, latest.current.account);
    followTouch(chart, () => showSelection(chart, latest.current.account));
    const observer = new ResizeObserver(() => {
      if (element.clientWidth !== chart.width) chart.setSize({ width: element.clientWidth, height: chart.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [model, timeline, data, theme, account.scope, cause, events, printing]);

  useLayoutEffect(() => {
    if (plot.current) showSelection(plot.current, account);
  }, [account]);

  return (
    <div
      class={account.selection.kind === "whole" ? "timeline whole" : "timeline"} ref={host} tabIndex={0} role="application" data-testid="timeline"
      aria-label={`Memory over time: from ${secondsText(account.from)} to ${secondsText(account.to)} chosen. Arrow keys move through the snapshots, with Shift they choose an interval, Escape chooses all.`}
      onKeyDown={(event) => onKey(event, latest.current)}
    />
  );
}

// A spread of so many would not fit the stack.
function largest(values: ArrayLike<number | null | undefined>): number {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = Math.max(most, values[i] ?? 0);
  return most;
}

const LEAST_DRAGGED = 4; // pixels
const AXIS_FONT = "12px ui-sans-serif, system-ui, sans-serif";

const TIME_STEPS = [
  ...[-6, -5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)),
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800,
];

// All in one unit.
function axisTimes(_u: uPlot, splits: number[]): string[] {
  const last = splits[splits.length - 1] ?? 0;
  const [unit, seconds] = last >= 4 * 3600 ? ["h", 3600] : last >= 180 ? ["min", 60] : ["s", 1];
  return splits.map((at) => `${+(at / seconds).toFixed(6)} ${unit}`);
}

function blended(colour: string, theme: Theme): string {
  const ground = theme === "dark" ? 26 : 255;
  return `#${[1, 3, 5].map((at) => Math.round(Number.parseInt(colour.slice(at, at + 2), 16) * 0.25 + ground * 0.75).toString(16).padStart(2, "0")).join("")}`;
}

// Edges stand at snapshots, where figures are known: at the nearest one, at the beginning, at the end, or where teardown
// begins.
function snapped({ timeline, model }: Properties, time: number): number {
  const end = lastMoment(model);
  if (time <= 0) return 0;
  if (time >= end) return end;
  const before = lastAt(timeline.time, 0, timeline.time.length, time);
  const candidates = [0, model.report.interval.to_s, end];
  if (before >= 0) candidates.push(timeline.time[before]);
  if (before + 1 < timeline.time.length) candidates.push(timeline.time[before + 1]);
  return candidates.reduce((best, at) => (Math.abs(at - time) < Math.abs(best - time) ? at : best));
}

// uPlot knows a mouse only. `style.css` leaves moving up and down to the page.
function followTouch(chart: uPlot, restore: () => void): void {
  const { over } = chart;
  let from: number | null = null;
  const follow = (event: PointerEvent) => {
    if (event.pointerType !== "touch") return;
    const { left, width } = over.getBoundingClientRect(), at = Math.min(Math.max(event.clientX - left, 0), width);
    if (event.type === "pointerdown") from = at;
    if (event.type === "pointercancel") restore();
    else if (from !== null) chart.setSelect({ left: Math.min(from, at), width: Math.abs(at - from), top: 0, height: over.clientHeight }, event.type === "pointerup");
    if (event.type === "pointerup" && Math.abs(at - (from ?? at)) < LEAST_DRAGGED) restore();
    if (event.type !== "pointerdown" && event.type !== "pointermove") from = null;
  };
  for (const type of ["pointerdown", "pointermove", "pointerup", "pointercancel"] as const) over.addEventListener(type, follow);
}

function showSelection(chart: uPlot, account: Account): void {
  const left = chart.valToPos(account.from, "x"), right = chart.valToPos(account.to, "x");
  const whole = account.selection.kind === "whole";
  chart.setSelect({ left, width: whole ? 0 : Math.max(right - left, 1), top: 0, height: whole ? 0 : chart.over.clientHeight }, false);
}

function onKey(event: KeyboardEvent, properties: Properties): void {
  const { timeline, account, cursor, model, onCursor, onSelect } = properties;
  const times = timeline.time, end = model.report.interval.to_s;
  if (event.key === "Escape") return onSelect({ kind: "whole" });
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  const step = steps[event.key];
  if (step === undefined || times.length === 0) return;
  event.preventDefault();
  const from = cursor ?? (account.selection.kind === "range" ? account.to : 0);
  const at = Math.min(Math.max(lastAt(times, 0, times.length, from) + step, -1), times.length - 1);
  const next = step === Infinity ? end : at < 0 ? 0 : times[at];
  onCursor(next);
  if (!event.shiftKey) return;
  // The edge that stands where the cursor was moves with it.
  const range = account.selection.kind === "range" ? account.selection : { from, to: from };
  const other = Math.abs(range.from - from) < Math.abs(range.to - from) ? range.to : range.from;
  if (next !== other) onSelect({ kind: "range", from: Math.min(next, other), to: Math.max(next, other) });
}
