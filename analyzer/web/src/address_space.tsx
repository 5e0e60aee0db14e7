// The picture of an address space: a row per mapping, a cell per page or group of pages, at one of its snapshots.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { causeColour, mixed, themeColour, type Theme } from "./colours";
import type { Model } from "./data";
import { baseName, secondsText, sizeText } from "./format";
import { usePrinting } from "./list";
import { Choice } from "./parts";
import { type Cells, cellsOf, countCells, PAGE_BYTES, type Picture, type Pictures, WHOLE_PAGE } from "./picture_data";

type ColourBy = "cause" | "line" | "age" | "offset";

const CELL = 7, LINE = 13; // pixels, with the gap between
const FOLDED_LINES = 4, OPEN_LINES = 60, FIRST_ROWS = 24, MORE_ROWS = 100, LONGEST_GAP = 6, SKIPPED = 2;
const STEP_MS = 700; // of a film

// Of the process with the most memory in a picture, where several are shown.
function pictured(pictures: Pictures, model: Model, scope: number): number {
  let most = -1, process = -1;
  for (const picture of pictures.list) {
    const first = model.snapshotStart[picture.process], end = model.snapshotStart[picture.process + 1];
    for (let i = first; i < end; i++)
      if (model.time[i] === picture.time && model.rss[i] > most && (scope < 0 || scope === picture.process)) {
        most = model.rss[i];
        process = picture.process;
      }
  }
  return process;
}

export function AddressSpace({ model, scope, from, to, theme }: { model: Model; scope: number; from: number; to: number; theme: Theme }) {
  const { pictures } = model;
  const process = useMemo(() => pictured(pictures, model, scope), [pictures, model, scope]);
  const film = useMemo(() => {
    const own = pictures.list.filter((picture) => picture.process === process);
    const within = own.filter((picture) => picture.time >= from && picture.time <= to);
    return within.length > 0 ? within : own.filter((picture) => picture.time <= to).slice(-1);
  }, [pictures, process, from, to]);
  const [chosen, setChosen] = useState(Number.POSITIVE_INFINITY);
  const [playing, setPlaying] = useState(false);
  const [by, setBy] = useState<ColourBy>("cause");
  const [order, setOrder] = useState<"size" | "address">("size");
  useEffect(() => setChosen(Number.POSITIVE_INFINITY), [film]);
  const at = Math.min(chosen, film.length - 1);
  useEffect(() => {
    if (!playing) return undefined;
    if (at + 1 >= film.length) {
      setPlaying(false);
      return undefined;
    }
    const timer = setTimeout(() => setChosen(at + 1), STEP_MS);
    return () => clearTimeout(timer);
  }, [playing, at, film]);
  const paint = useMemo(() => new Paint(model, process, by, theme), [model, process, by, theme]);
  if (film.length === 0) return <p class="empty" data-testid="pages-empty">No picture of its pages is in this file.</p>;
  const picture = film[at];
  const play = () => {
    if (!playing && at + 1 >= film.length) setChosen(0);
    setPlaying(!playing);
  };
  return (
    <div class="address-space">
      <div class="controls">
        <Choice label="coloured by" value={by} onChange={setBy}
          options={[["cause", "cause"], ["line", "line"], ["age", "age"], ["offset", "file offset"]]} />
        <Choice label="order" value={order} onChange={setOrder} options={[["size", "largest first"], ["address", "by address"]]} />
        {film.length > 1 && (
          <label class="moment">
            <button type="button" onClick={play} aria-pressed={playing}>{playing ? "pause" : "play"}</button>
            <input type="range" min={0} max={film.length - 1} value={at} data-testid="moment"
              aria-label="snapshot" aria-valuetext={secondsText(picture.time)}
              onInput={(event) => {
                setPlaying(false);
                setChosen(Number((event.target as HTMLInputElement).value));
              }} />
          </label>
        )}
        <p class="note" data-testid="pictured" aria-live={playing ? "off" : "polite"}>
          {scope < 0 && model.processes.length > 1 && `pid ${model.processes[process].pid}, `}at {secondsText(picture.time)}
          {film.length > 1 && `, ${at + 1} of ${film.length} snapshots with a picture`}
        </p>
      </div>
      <Legend model={model} picture={picture} paint={paint} />
      <Rows key={order} model={model} picture={picture} paint={paint} theme={theme} order={order} />
      {picture.mappingsLeftOut > 0 && (
        <p class="note">{picture.mappingsLeftOut.toLocaleString("en")} small mappings with {sizeText(picture.pagesLeftOut * PAGE_BYTES)} are not in the picture.</p>
      )}
    </div>
  );
}

const HUES = ["#4e79a7", "#e8833a", "#59a14f", "#d1495b", "#8e6bbf", "#c9a227", "#3aa6a1", "#b5658f", "#8a6d55", "#7a8f2e"];

// The colours of cells, and what they stand for.
class Paint {
  readonly lines: [label: number, colour: string][] = []; // those with the most pages in the pictures of the process
  private readonly ofLabel = new Map<number, string>();
  private readonly filePages = new Map<number, number>(); // of each path, up to where it is mapped
  private readonly old: string;
  private readonly young: string;
  private readonly plain: string;

  constructor(private readonly model: Model, process: number, readonly by: ColourBy, private readonly theme: Theme) {
    this.old = theme === "dark" ? "#2f3f52" : "#cfdcea";
    this.young = theme === "dark" ? "#8fc3ff" : "#174f96";
    this.plain = theme === "dark" ? "#4a4d52" : "#cfcbc3";
    const { pictures } = model, { mapped, run } = pictures;
    const pages = new Map<number, number>();
    for (const picture of pictures.list) {
      if (picture.process !== process) continue;
      for (let mapping = picture.first; mapping < picture.end; mapping++) {
        const end = mapped.filePage[mapping] + mapped.pages[mapping];
        this.filePages.set(mapped.path[mapping], Math.max(this.filePages.get(mapped.path[mapping]) ?? 0, end));
        for (let i = mapped.run[mapping]; i < mapped.run[mapping + 1]; i++) {
          const label = this.labelOf(run.stack[i]);
          if (label >= 0) pages.set(label, (pages.get(label) ?? 0) + run.resident[i]);
        }
      }
    }
    const largest = [...pages].sort((a, b) => b[1] - a[1]).slice(0, HUES.length);
    largest.forEach(([label], i) => {
      this.lines.push([label, HUES[i]]);
      this.ofLabel.set(label, HUES[i]);
    });
  }

  cause(cause: number): string {
    return causeColour(this.model.causes[cause].slug, this.theme);
  }

  get ends(): [string, string] {
    return [this.old, this.young];
  }

  get rest(): string {
    return this.plain;
  }

  // What a cell is filled with, from its bottom up.
  of(mapping: number, cells: Cells, i: number): [colour: string, part: number][] {
    if (this.by !== "cause") return [[this.single(mapping, cells, i), 1]];
    const filled: [string, number][] = [];
    for (const { cause, part, live } of cells.shares.get(i) ?? [{ cause: cells.cause[i], part: 1, live: cells.live[i] }]) {
      const isHeld = this.model.causes[cause].slug === "heap_live" && live < WHOLE_PAGE;
      filled.push([this.cause(cause), isHeld ? part * (live / WHOLE_PAGE) : part]);
      if (isHeld) filled.push([this.slack, part * (1 - live / WHOLE_PAGE)]);
    }
    return filled;
  }

  private single(mapping: number, cells: Cells, i: number): string {
    if (this.by === "line") return this.ofLabel.get(this.labelOf(cells.stack[i])) ?? this.plain;
    if (this.by === "age") {
      const { from_s, to_s } = this.model.report.interval;
      return mixed(this.old, this.young, Math.min(Math.max((cells.since[i] - from_s) / Math.max(to_s - from_s, 1e-9), 0), 1));
    }
    const { mapped } = this.model.pictures, path = mapped.path[mapping];
    if (!isFile(this.model, mapping)) return this.plain;
    return mixed(this.old, this.young, (mapped.filePage[mapping] + cells.page[i]) / Math.max(this.filePages.get(path) ?? 1, 1));
  }

  get slack(): string {
    return causeColour("heap_slack", this.theme);
  }

  private labelOf(stack: number): number {
    const line = this.model.stackLine[stack];
    return line > 0 ? this.model.frameLabel[line - 1] : -1;
  }
}

function isFile(model: Model, mapping: number): boolean {
  return model.strings[model.pictures.mapped.path[mapping]].startsWith("/");
}

function Key({ colour, children }: { colour: string; children: string }) {
  return <span><i class="swatch" style={{ backgroundColor: colour }} />{children}</span>;
}

function Legend({ model, picture, paint }: { model: Model; picture: Picture; paint: Paint }) {
  const { mapped, run } = model.pictures;
  const causes = useMemo(() => {
    const seen = new Set<number>();
    for (let i = mapped.run[picture.first]; i < mapped.run[picture.end]; i++) seen.add(run.cause[i]);
    return [...seen].sort((a, b) => a - b);
  }, [picture]);
  const [old, young] = paint.ends;
  const hasSlack = paint.by === "cause" && causes.some((cause) => model.causes[cause].slug === "heap_live");
  const scale = (first: string, last: string) => (
    <span>{first} <i class="scale" style={{ background: `linear-gradient(to right, ${old}, ${young})` }} /> {last}</span>
  );
  return (
    <p class="legend" data-testid="pages-legend">
      {paint.by === "cause" && causes.map((cause) => <Key key={cause} colour={paint.cause(cause)}>{model.causes[cause].title}</Key>)}
      {hasSlack && <Key colour={paint.slack}>free beside live blocks, by their share of the page</Key>}
      {paint.by === "line" && paint.lines.map(([label, colour]) => <Key key={label} colour={colour}>{model.strings[label]}</Key>)}
      {paint.by === "line" && <Key colour={paint.rest}>other lines, or not known</Key>}
      {paint.by === "age" && scale("resident since the beginning", "new at the end")}
      {paint.by === "offset" && scale("first page of the file", "last")}
      {paint.by === "offset" && <Key colour={paint.rest}>no file</Key>}
    </p>
  );
}

// Cells in lines of a row: those far apart are moved together.
interface Layout {
  mapping: number;
  cells: Cells;
  place: Float64Array; // of each cell
  columns: number;
  lines: number;
  skips: number[]; // places
}

function placed(cells: Cells): { place: Float64Array; skips: number[] } {
  const place = new Float64Array(cells.page.length), skips: number[] = [];
  for (let i = 1; i < place.length; i++) {
    const gap = Math.round((cells.page[i] - cells.page[i - 1]) / cells.pages) - 1;
    place[i] = place[i - 1] + 1 + (gap > LONGEST_GAP ? SKIPPED : Math.max(gap, 0));
    if (gap > LONGEST_GAP) skips.push(place[i] - SKIPPED);
  }
  return { place, skips };
}

function layoutOf(pictures: Pictures, mapping: number, columns: number, most: number): Layout {
  let size = pictures.cellPages(mapping);
  while (countCells(pictures, mapping, size) > columns * most) size *= 2;
  for (;;) {
    const cells = cellsOf(pictures, mapping, size), { place, skips } = placed(cells);
    const lines = Math.floor((place[place.length - 1] ?? 0) / columns) + 1;
    if (lines <= most || place.length <= 1) return { mapping, cells, place, columns, lines, skips };
    size *= 2;
  }
}

function draw(canvas: HTMLCanvasElement, layout: Layout, paint: Paint, focus: number): void {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = layout.lines * LINE;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(ratio, ratio);
  const { cells, place, columns } = layout;
  const x = (at: number) => (at % columns) * CELL, y = (at: number) => Math.floor(at / columns) * LINE;
  const wide = CELL - 1, high = LINE - 1;
  for (let i = 0; i < place.length; i++) {
    let bottom = high;
    for (const [colour, part] of paint.of(layout.mapping, cells, i)) {
      pen.fillStyle = colour;
      pen.fillRect(x(place[i]), y(place[i]) + bottom - high * part, wide, high * part);
      bottom -= high * part;
    }
  }
  pen.fillStyle = themeColour("faint");
  for (const at of layout.skips)
    for (let i = 0; i < SKIPPED; i++) pen.fillRect(x(at + i) + CELL / 2 - 1, y(at + i) + LINE / 2 - 1, 1.5, 1.5);
  if (focus < 0 || focus >= place.length) return;
  pen.strokeStyle = themeColour("ink");
  pen.lineWidth = 2;
  pen.strokeRect(x(place[focus]) + 1, y(place[focus]) + 1, wide - 2, high - 2);
}

function cellAt(layout: Layout, event: MouseEvent): number {
  const rect = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const column = Math.floor((event.clientX - rect.left) / CELL), line = Math.floor((event.clientY - rect.top) / LINE);
  return column < layout.columns ? layout.place.indexOf(line * layout.columns + column) : -1;
}

function mappingName(model: Model, mapping: number): string {
  const path = model.strings[model.pictures.mapped.path[mapping]];
  return path === "" ? "(nameless)" : baseName(path) || path;
}

function described(model: Model, { mapping, cells }: Layout, i: number): string {
  const { mapped } = model.pictures, cause = model.causes[cells.cause[i]];
  const address = BigInt(mapped.page[mapping] + cells.page[i]) * BigInt(PAGE_BYTES);
  const words = [`0x${address.toString(16)}`, mappingName(model, mapping)];
  const resident = Math.round(cells.resident[i]);
  if (cells.pages > 1) words.push(`${resident} of ${cells.pages} pages resident, most of them`);
  const isHeld = cause.slug === "heap_live" && cells.live[i] < WHOLE_PAGE;
  words.push(isHeld ? `${cause.title}, in ${cells.live[i]}/${WHOLE_PAGE} of the ${cells.pages > 1 ? "pages" : "page"}` : cause.title);
  const line = model.stackText(cells.stack[i]);
  if (line) words.push(cause.slug.startsWith("heap_") ? `allocated last at ${line}` : `mapped at ${line}`);
  if (isFile(model, mapping)) words.push(`file offset ${sizeText((mapped.filePage[mapping] + cells.page[i]) * PAGE_BYTES)}`);
  words.push(`since ${secondsText(cells.since[i])}`);
  return words.join(" · ");
}

function Rows({ model, picture, paint, theme, order }: {
  model: Model; picture: Picture; paint: Paint; theme: Theme; order: "size" | "address";
}) {
  const { pictures } = model;
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [limit, setLimit] = useState(FIRST_ROWS);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set()); // pages where mappings begin: they stay from picture to picture
  const [focus, setFocus] = useState<[row: number, cell: number] | null>(null);
  const [hover, setHover] = useState<[row: number, cell: number] | null>(null);
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const measure = () => setWidth(element.querySelector("canvas")?.clientWidth ?? 0);
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  const all = useMemo(() => {
    const mappings = Array.from({ length: picture.end - picture.first }, (_, i) => picture.first + i);
    const resident = new Map(mappings.map((mapping) => [mapping, pictures.residentPages(mapping)]));
    if (order === "size") mappings.sort((a, b) => (resident.get(b) as number) - (resident.get(a) as number));
    return mappings.map((mapping) => ({ mapping, resident: resident.get(mapping) as number }));
  }, [pictures, picture, order]);
  const rows = all.slice(0, limit);
  const isOpen = (mapping: number) => open.has(pictures.mapped.page[mapping]);
  const columns = Math.max(Math.floor(width / CELL), 1);
  const layouts = useMemo(
    () => (width === 0 ? [] : rows.map(({ mapping }) => layoutOf(pictures, mapping, columns, isOpen(mapping) ? OPEN_LINES : FOLDED_LINES))),
    [pictures, picture, order, limit, columns, open],
  );
  const toggle = (mapping: number) => {
    const next = new Set(open);
    if (!next.delete(pictures.mapped.page[mapping])) next.add(pictures.mapped.page[mapping]);
    setOpen(next);
  };
  const onKey = (event: KeyboardEvent) => {
    const next = moved(layouts, focus ?? [0, 0], event.key);
    if (next) setFocus(next);
    else if (event.key === "Enter" || event.key === " ") toggle(rows[(focus ?? [0])[0]].mapping);
    else return;
    event.preventDefault();
  };
  const [row, cell] = hover ?? focus ?? [-1, -1];
  const text = layouts[row] && cell >= 0 && cell < layouts[row].place.length ? described(model, layouts[row], cell) : "";
  return (
    <>
      <p class="told" aria-live="polite" data-testid="page-described">{text || "Point at a page, or choose one with the arrow keys."}</p>
      <div ref={frame} class="pages" role="application" tabIndex={0} data-testid="pages" onKeyDown={onKey}
        onFocus={() => setFocus(focus ?? [0, 0])} onBlur={() => setFocus(null)}
        aria-label="Pages of the address space, a row for each mapping. Arrow keys move, Enter shows more of a mapping.">
        {rows.map(({ mapping, resident }, i) => (
          <div key={pictures.mapped.page[mapping]} class="page-row">
            <div>
              <button type="button" class="link" tabIndex={-1} onClick={() => toggle(mapping)} aria-expanded={isOpen(mapping)}
                title={`${model.strings[pictures.mapped.path[mapping]]} at 0x${(BigInt(pictures.mapped.page[mapping]) * BigInt(PAGE_BYTES)).toString(16)}`}>
                <span class="code">{mappingName(model, mapping)}</span>
              </button>
              <span class="note">{sizeText(resident * PAGE_BYTES)} <span class="code">{pictures.permissions(mapping)}</span>
                {layouts[i] && layouts[i].cells.pages > 1 && `, ${sizeText(layouts[i].cells.pages * PAGE_BYTES)} a cell`}</span>
            </div>
            <Strip layout={layouts[i]} paint={paint} theme={theme} focus={focus?.[0] === i ? focus[1] : -1}
              onHover={(at) => setHover(at < 0 ? null : [i, at])} onChoose={() => toggle(mapping)} />
          </div>
        ))}
      </div>
      {rows.length < all.length && (
        <button type="button" class="link rest" onClick={() => setLimit(limit + MORE_ROWS)}>
          {all.length - rows.length} more mappings, {sizeText(all.slice(limit).reduce((sum, each) => sum + each.resident, 0) * PAGE_BYTES)}
        </button>
      )}
    </>
  );
}

function Strip({ layout, paint, theme, focus, onHover, onChoose }: {
  layout: Layout | undefined; paint: Paint; theme: Theme; focus: number; onHover: (cell: number) => void; onChoose: () => void;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const printing = usePrinting();
  useLayoutEffect(() => {
    if (canvas.current && layout) draw(canvas.current, layout, paint, focus);
  }, [layout, paint, theme, focus, printing]);
  return (
    <canvas ref={canvas} onMouseMove={(event) => layout && onHover(cellAt(layout, event))} onMouseLeave={() => onHover(-1)}
      onClick={onChoose} />
  );
}

// Left and right among the pages of a mapping, up and down among mappings.
function moved(layouts: Layout[], [row, cell]: [number, number], key: string): [number, number] | null {
  const { length } = layouts[row]?.place ?? [];
  if (!length) return null;
  if (key === "ArrowLeft") return [row, Math.max(cell - 1, 0)];
  if (key === "ArrowRight") return [row, Math.min(cell + 1, length - 1)];
  if (key === "Home") return [row, 0];
  if (key === "End") return [row, length - 1];
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const next = Math.min(Math.max(row + (key === "ArrowUp" ? -1 : 1), 0), layouts.length - 1);
  return [next, Math.min(cell, layouts[next].place.length - 1)];
}
