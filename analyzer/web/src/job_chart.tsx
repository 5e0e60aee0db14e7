// Memory of a job over time: the causes of all processes on top of each other, and how far single processes are apart.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { causeColour, STACKING, type Theme } from "./colours";
import { secondsText, sizeText } from "./format";
import type { JobModel, JobTimeline } from "./job_data";
import { usePrinting } from "./list";

const LEFT = 72, RIGHT = 8, BOTTOM = 20, STACKED = 220, BANDS = 130;

function useWidth() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const printing = usePrinting(); // a printer does not wait for an observer
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setWidth(Math.max(element.clientWidth, 200));
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    measure();
    return () => watcher.disconnect();
  }, [printing]);
  return { box, width };
}

// Round sizes up to `most`: 1, 2 or 5 times a power of ten, of the unit that they are written in.
export function ticksOf(most: number, wanted: number): number[] {
  const unit = 1024 ** Math.max(0, Math.min(3, Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024))));
  const rough = most / unit / wanted, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power * unit;
  const ticks: number[] = [];
  for (let at = 0; at <= most && step > 0; at += step) ticks.push(at);
  return ticks;
}

// Steps along the top from left to right; with `bottom` back along it.
function area(top: ArrayLike<number>, bottom: ArrayLike<number> | null, x: (stretch: number) => number, y: (bytes: number) => number): string {
  const forth: string[] = [], back: string[] = [];
  for (let i = 0; i < top.length; i++) {
    forth.push(`${x(i).toFixed(1)},${y(top[i]).toFixed(1)} ${x(i + 1).toFixed(1)},${y(top[i]).toFixed(1)}`);
    if (bottom) back.push(`${x(i + 1).toFixed(1)},${y(bottom[i]).toFixed(1)} ${x(i).toFixed(1)},${y(bottom[i]).toFixed(1)}`);
  }
  return `M${forth.join(" L")}${bottom ? ` L${back.reverse().join(" L")} Z` : ""}`;
}

function Axes({ width, height, most, seconds, y }: {
  width: number; height: number; most: number; seconds: number | null; y: (bytes: number) => number;
}) {
  const parts = Math.max(2, Math.min(8, Math.floor(width / 130)));
  return (
    <g class="axes">
      {ticksOf(most, 4).map((bytes) => (
        <g key={bytes}>
          <line x1={LEFT} x2={width - RIGHT} y1={y(bytes)} y2={y(bytes)} />
          <text x={LEFT - 6} y={y(bytes) + 4} text-anchor="end">{bytes === 0 ? "0" : sizeText(bytes).replace(".0 ", " ")}</text>
        </g>
      ))}
      {seconds !== null && Array.from({ length: parts + 1 }, (_, i) => (
        <text key={i} x={LEFT + (i / parts) * (width - LEFT - RIGHT)} y={height - 4} text-anchor={i === 0 ? "start" : i === parts ? "end" : "middle"}>
          {i === 0 ? "0 s" : secondsText((seconds * i) / parts)}
        </text>
      ))}
    </g>
  );
}

interface Properties {
  model: JobModel;
  timeline: JobTimeline;
  theme: Theme;
  cursor: number | null;
  onCursor: (stretch: number | null) => void;
}

export const QUANTILES: [keyof JobTimeline & ("p50" | "p95" | "p99" | "max"), string][] = [
  ["p50", "median"], ["p95", "95 %"], ["p99", "99 %"], ["max", "most"],
];

export function JobCharts({ model, timeline, theme, cursor, onCursor }: Properties) {
  const { box, width } = useWidth();
  const { stretches, stretchSeconds } = model;
  const seconds = stretches * stretchSeconds;
  const x = (stretch: number) => LEFT + (stretch / stretches) * (width - LEFT - RIGHT);
  const at = (event: PointerEvent) => {
    const left = box.current?.getBoundingClientRect().left ?? 0;
    const part = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
    return Math.max(0, Math.min(stretches - 1, Math.floor(part * stretches)));
  };
  const moved = (event: KeyboardEvent) => {
    const now = cursor ?? 0, step = event.shiftKey ? 10 : 1;
    const next = { ArrowLeft: now - step, ArrowRight: now + step, Home: 0, End: stretches - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    onCursor(Math.max(0, Math.min(stretches - 1, next)));
  };

  const sum = new Float64Array(stretches);
  const layers = STACKING.flatMap((slug) => {
    const cause = model.causeOfSlug.get(slug) ?? -1, values = timeline.causes.get(cause);
    if (!values) return [];
    const bottom = sum.slice();
    for (let i = 0; i < stretches; i++) sum[i] += values[i];
    return [{ cause, slug, bottom, top: sum.slice() }];
  });
  const most = Math.max(1, ...sum), tallest = Math.max(1, ...timeline.max);
  const stackedY = (bytes: number) => 6 + (1 - bytes / most) * (STACKED - 10);
  const bandsY = (bytes: number) => 6 + (1 - bytes / tallest) * (BANDS - BOTTOM - 8);
  const line = cursor === null ? null : x(cursor + 0.5);
  const shown = cursor ?? 0;
  return (
    <div class="job-charts" ref={box} tabIndex={0} role="slider" aria-label="Moment of the job" aria-valuemin={0} aria-valuemax={stretches - 1}
      aria-valuenow={shown} aria-valuetext={`${secondsText(shown * stretchSeconds)}: ${sizeText(sum[shown])} in all, median ${sizeText(timeline.p50[shown])}`}
      onKeyDown={moved} onPointerMove={(event) => onCursor(at(event))} onPointerDown={(event) => onCursor(at(event))} data-testid="charts">
      <svg width={width} height={STACKED} aria-hidden="true" data-testid="stacked">
        {layers.map(({ cause, slug, bottom, top }) => (
          <path key={cause} data-cause={slug} d={area(top, bottom, x, stackedY)} fill={causeColour(slug, theme)} />
        ))}
        <Axes width={width} height={STACKED} most={most} seconds={null} y={stackedY} />
        {line !== null && <line class="at" x1={line} x2={line} y1={0} y2={STACKED} />}
      </svg>
      <p class="note chart-title">RSS of one process: median, 95 %, 99 %, and the most</p>
      <svg width={width} height={BANDS} aria-hidden="true" data-testid="bands">
        {[...QUANTILES].reverse().map(([name]) => (
          <path key={name} class={`band ${name}`} d={area(timeline[name], new Float64Array(stretches), x, bandsY)} />
        ))}
        {QUANTILES.map(([name]) => <path key={name} class={`edge ${name}`} d={area(timeline[name], null, x, bandsY)} />)}
        <Axes width={width} height={BANDS} most={tallest} seconds={seconds} y={bandsY} />
        {line !== null && <line class="at" x1={line} x2={line} y1={0} y2={BANDS - BOTTOM} />}
      </svg>
    </div>
  );
}
