// Memory by cause over time, of one process or of all, as steps: what holds from each moment until the next.

import type { Model } from "./data";

export interface Timeline {
  time: Float64Array;
  rss: Float64Array; // sum of the causes
  causes: Float64Array[]; // by cause
  estimate: Uint8Array; // 1: from polls and events since the last look at the pages
}

export function timelineOf(model: Model, scope: number): Timeline {
  return scope < 0 ? treeTimeline(model) : processTimeline(model, scope);
}

function emptyTimeline(model: Model, length: number): Timeline {
  return {
    time: new Float64Array(length),
    rss: new Float64Array(length),
    causes: model.causes.map(() => new Float64Array(length)),
    estimate: new Uint8Array(length),
  };
}

function processTimeline(model: Model, process: number): Timeline {
  const begin = model.snapshotStart[process], end = model.snapshotStart[process + 1];
  const timeline = emptyTimeline(model, end - begin);
  for (let i = begin; i < end; i++) {
    timeline.time[i - begin] = model.time[i];
    timeline.rss[i - begin] = model.rss[i];
    timeline.estimate[i - begin] = model.looked[i] < model.time[i] ? 1 : 0;
    for (let cause = 0; cause < model.causeCount; cause++)
      timeline.causes[cause][i - begin] = model.causeBytes[i * model.causeCount + cause];
  }
  return timeline;
}

// Snapshots of all processes, and the moments right after those until which one is there.
function treeTimeline(model: Model): Timeline {
  const snapshots = model.time.length, count = model.causeCount;
  const order: { time: number; snapshot: number; process: number; gone: boolean }[] = [];
  for (let process = 0; process < model.processes.length; process++) {
    const until = model.processes[process].there_until_s;
    for (let i = model.snapshotStart[process]; i < model.snapshotStart[process + 1]; i++)
      if (until === null || model.time[i] <= until) order.push({ time: model.time[i], snapshot: i, process, gone: false });
    if (until !== null) order.push({ time: until, snapshot: -1, process, gone: true });
  }
  order.sort((a, b) => a.time - b.time || Number(a.gone) - Number(b.gone));
  const timeline = emptyTimeline(model, Math.min(order.length, snapshots + model.processes.length));
  const now = new Int32Array(model.processes.length).fill(-1);
  const sums = new Float64Array(count);
  let rss = 0, length = 0, estimates = 0;
  const isEstimate = (snapshot: number) => (snapshot >= 0 && model.looked[snapshot] < model.time[snapshot] ? 1 : 0);
  for (let i = 0; i < order.length; i++) {
    const { time, snapshot, process, gone } = order[i], before = now[process];
    for (let cause = 0; cause < count; cause++) {
      if (before >= 0) sums[cause] -= model.causeBytes[before * count + cause];
      if (snapshot >= 0) sums[cause] += model.causeBytes[snapshot * count + cause];
    }
    rss += (snapshot >= 0 ? model.rss[snapshot] : 0) - (before >= 0 ? model.rss[before] : 0);
    estimates += isEstimate(snapshot) - isEstimate(before);
    now[process] = snapshot;
    const next = order[i + 1];
    if (next && next.time === time && next.gone === gone) continue;
    timeline.time[length] = gone ? time * (1 + 2 ** -50) + Number.MIN_VALUE : time; // right after it
    timeline.rss[length] = rss;
    timeline.estimate[length] = estimates > 0 ? 1 : 0;
    for (let cause = 0; cause < count; cause++) timeline.causes[cause][length] = sums[cause];
    length++;
  }
  return {
    time: timeline.time.subarray(0, length),
    rss: timeline.rss.subarray(0, length),
    causes: timeline.causes.map((values) => values.subarray(0, length)),
    estimate: timeline.estimate.subarray(0, length),
  };
}

// RSS of all processes together, as steps, by every poll and snapshot: between two snapshots it may be more than the sum
// of their causes.
export function treeRss(model: Model): { time: Float64Array; rss: Float64Array } {
  const order: { time: number; process: number; rss: number; gone: boolean }[] = [];
  model.processes.forEach(({ there_until_s: until }, process) => {
    const add = (time: number, rss: number) => {
      if (until === null || time <= until) order.push({ time, process, rss, gone: false });
    };
    for (let i = model.pollStart[process]; i < model.pollStart[process + 1]; i++) add(model.pollTime[i], model.pollRss[i]);
    for (let i = model.snapshotStart[process]; i < model.snapshotStart[process + 1]; i++) add(model.time[i], model.rss[i]);
    if (until !== null) order.push({ time: until, process, rss: 0, gone: true });
  });
  order.sort((a, b) => a.time - b.time || Number(a.gone) - Number(b.gone));
  const now = new Float64Array(model.processes.length);
  const time = new Float64Array(order.length), rss = new Float64Array(order.length);
  let sum = 0;
  order.forEach((change, i) => {
    sum += change.rss - now[change.process];
    now[change.process] = change.rss;
    time[i] = change.time;
    rss[i] = sum;
  });
  return { time, rss };
}

// Which moments are drawn, and from when on each. As they are while there is room; else of each of `stretches` of the
// time the one with most, which may be from before it: so no peak is lost, and hundreds of short processes are no comb.
export function drawnMoments(timeline: { time: ArrayLike<number>; rss: ArrayLike<number> }, stretches: number): { time: number[]; at: number[]; width: number } {
  const { time, rss } = timeline, length = time.length;
  if (length <= stretches) return { time: Array.from(time), at: Array.from(time, (_, i) => i), width: 0 };
  const width = (time[length - 1] - time[0]) / stretches || 1;
  const drawn = { time: [] as number[], at: [] as number[], width };
  const draw = (from: number, at: number) => {
    if (drawn.at[drawn.at.length - 1] === at) return;
    drawn.time.push(from);
    drawn.at.push(at);
  };
  for (let i = 0, stretch = 0; i < length; stretch++) {
    const begin = time[0] + stretch * width, end = time[0] + (stretch + 1) * width;
    let most = i > 0 && time[i] > begin ? i - 1 : i;
    for (; i < length && (time[i] < end || stretch >= stretches); i++) if (rss[i] > rss[most] || Number.isNaN(rss[most])) most = i;
    draw(begin, most);
  }
  draw(time[length - 1], length - 1);
  return drawn;
}

// The points of a line as far as a screen shows them: of those in one pixel the first, the smallest, the largest and the
// last. NaN: not known from there on.
export function pixelPoints(
  time: ArrayLike<number>, bytes: ArrayLike<number>, begin: number, end: number, toX: (time: number) => number,
): { x: number; bytes: number }[] {
  const points: { x: number; bytes: number }[] = [];
  for (let i = begin; i < end; ) {
    const x = toX(time[i]), pixel = Math.round(x);
    if (Number.isNaN(bytes[i])) {
      points.push({ x, bytes: Number.NaN });
      i++;
      continue;
    }
    let least = i, most = i, last = i;
    for (; i < end && Math.round(toX(time[i])) === pixel && !Number.isNaN(bytes[i]); last = i++) {
      if (bytes[i] < bytes[least]) least = i;
      if (bytes[i] > bytes[most]) most = i;
    }
    points.push({ x, bytes: bytes[Math.min(least, most)] });
    if (most !== least) points.push({ x, bytes: bytes[Math.max(least, most)] });
    if (last > Math.max(least, most)) points.push({ x: toX(time[last]), bytes: bytes[last] });
  }
  return points;
}
