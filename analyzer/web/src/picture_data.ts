// Pictures of address spaces: what each resident page of a process was, at some of its snapshots.

import type { Columns } from "./data";

export interface Picture {
  process: number;
  time: number;
  first: number; // its mappings: [first, end)
  end: number;
  mappingsLeftOut: number;
  pagesLeftOut: number;
}

export const PAGE_BYTES = 4096, WHOLE_PAGE = 16;

export class Pictures {
  readonly list: Picture[] = [];

  // Of each mapping. Pages are counted from address 0.
  readonly mapped: { page: Float64Array; pages: Float64Array; filePage: Float64Array; path: Int32Array; flags: Int32Array; run: Uint32Array; age: Uint32Array };
  // Those of mapping i in [run[i], run[i + 1]); pages are counted from its start.
  readonly run: { page: Float64Array; pages: Float64Array; resident: Float64Array; cause: Uint8Array; stack: Int32Array; live: Uint8Array };
  readonly age: { page: Float64Array; pages: Float64Array; since: Float64Array };

  constructor(columns: Columns) {
    const process = columns.sums("picture_process"), time = columns.float64("picture_time");
    const mappings = columns.whole("picture_mappings"), left = columns.whole("picture_mappings_left_out");
    const pagesLeft = columns.whole("picture_pages_left_out");
    for (let i = 0, first = 0; i < process.length; i++) {
      this.list.push({ process: process[i], time: time[i], first, end: first + mappings[i], mappingsLeftOut: left[i], pagesLeftOut: pagesLeft[i] });
      first += mappings[i];
    }
    const length = columns.whole("mapped_pages"), runs = columns.whole("mapped_runs"), ages = columns.whole("mapped_ages");
    this.mapped = {
      page: placed(columns.whole("mapped_gap"), length, mappings), pages: length, filePage: columns.whole("mapped_file_page"),
      path: Int32Array.from(columns.whole("mapped_path")), flags: Int32Array.from(columns.whole("mapped_flags")),
      run: starts(runs), age: starts(ages),
    };
    const pages = columns.whole("run_pages"), missing = columns.whole("run_missing");
    this.run = {
      page: placed(columns.whole("run_gap"), pages, runs), pages, resident: pages.map((count, i) => count - missing[i]),
      cause: Uint8Array.from(columns.whole("run_cause")), stack: Int32Array.from(columns.sums("run_stack")),
      live: Uint8Array.from(columns.whole("run_live")),
    };
    const span = columns.whole("age_pages");
    this.age = { page: placed(columns.whole("age_gap"), span, ages), pages: span, since: columns.sums("age_since").map((us) => us / 1e6) };
  }

  // How many pages of a mapping are told as one.
  cellPages(mapping: number): number {
    return 2 ** (this.mapped.flags[mapping] >> 4);
  }

  permissions(mapping: number): string {
    const flags = this.mapped.flags[mapping];
    return `${flags & 1 ? "r" : "-"}${flags & 2 ? "w" : "-"}${flags & 4 ? "x" : "-"}${flags & 8 ? "s" : "p"}`;
  }

  residentPages(mapping: number): number {
    let sum = 0;
    for (let i = this.mapped.run[mapping]; i < this.mapped.run[mapping + 1]; i++) sum += this.run.resident[i];
    return sum;
  }
}

// Where each begins, from the gaps between them; counted anew for each of `groups`.
function placed(gaps: Float64Array, lengths: Float64Array, groups: ArrayLike<number>): Float64Array {
  const places = new Float64Array(gaps.length);
  for (let group = 0, i = 0; group < groups.length; group++)
    for (let at = 0, end = i + groups[group]; i < end; i++) {
      places[i] = at + gaps[i];
      at = places[i] + lengths[i];
    }
  return places;
}

function starts(counts: Float64Array): Uint32Array {
  const start = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) start[i + 1] = start[i] + counts[i];
  return start;
}

// Of a cell: what part of its pages has a cause, and how much of those is live (sixteenths).
export interface Share {
  cause: number;
  part: number;
  live: number;
}

// Cells of one size of a mapping that hold resident pages, by address; what is not resident is left out.
export interface Cells {
  pages: number; // of a cell
  page: Float64Array; // of the mapping, where each begins
  resident: Float64Array;
  cause: Uint8Array; // of most of its pages, and the rest of those
  stack: Int32Array;
  live: Uint8Array;
  since: Float64Array;
  shares: Map<number, Share[]>; // of cells of several causes
}

interface Part {
  cause: number;
  stack: number;
  live: number;
  pages: number;
}

export function countCells(pictures: Pictures, mapping: number, size: number): number {
  const { mapped, run } = pictures, base = mapped.page[mapping];
  let count = 0, last = -1;
  for (let i = mapped.run[mapping]; i < mapped.run[mapping + 1]; i++) {
    const first = Math.floor((base + run.page[i]) / size), end = Math.floor((base + run.page[i] + run.pages[i] - 1) / size);
    count += end - first + (first === last ? 0 : 1);
    last = end;
  }
  return count;
}

export function cellsOf(pictures: Pictures, mapping: number, size: number): Cells {
  const { mapped, run, age } = pictures, base = mapped.page[mapping], count = countCells(pictures, mapping, size);
  const cells: Cells = {
    pages: size, page: new Float64Array(count), resident: new Float64Array(count), cause: new Uint8Array(count),
    stack: new Int32Array(count), live: new Uint8Array(count), since: new Float64Array(count), shares: new Map(),
  };
  let at = -1, open = -1;
  let parts: Part[] = [];
  const close = () => {
    if (at < 0) return;
    const byCause = most(parts, (part) => part.cause);
    const of = parts.filter((part) => part.cause === byCause);
    let pages = 0, live = 0;
    for (const part of of) {
      pages += part.pages;
      live += part.pages * part.live;
    }
    cells.cause[at] = byCause;
    const known = of.filter((part) => part.stack !== 0); // where blocks are sampled, those of most pages are not
    cells.stack[at] = known.length === 0 ? 0 : most(known, (part) => part.stack);
    cells.live[at] = Math.max(Math.round(live / pages), 1);
    if (of.length < parts.length) cells.shares.set(at, sharesOf(parts));
    parts = [];
  };
  for (let i = mapped.run[mapping]; i < mapped.run[mapping + 1]; i++) {
    const begin = base + run.page[i], end = begin + run.pages[i], density = run.resident[i] / run.pages[i];
    for (let page = begin; page < end;) {
      const cell = Math.floor(page / size), until = Math.min(end, (cell + 1) * size), pages = (until - page) * density;
      if (cell !== open) {
        close();
        open = cell;
        cells.page[++at] = Math.max(cell * size, base) - base;
      }
      cells.resident[at] += pages;
      parts.push({ cause: run.cause[i], stack: run.stack[i], live: run.live[i], pages });
      page = until;
    }
  }
  close();
  for (let i = mapped.age[mapping], cell = 0; cell < count; cell++) {
    while (i + 1 < mapped.age[mapping + 1] && age.page[i] + age.pages[i] <= cells.page[cell]) i++;
    cells.since[cell] = age.since[i];
  }
  return cells;
}

// In the order of the causes.
function sharesOf(parts: Part[]): Share[] {
  const sums = new Map<number, { pages: number; live: number }>();
  let all = 0;
  for (const { cause, pages, live } of parts) {
    const sum = sums.get(cause) ?? { pages: 0, live: 0 };
    sums.set(cause, { pages: sum.pages + pages, live: sum.live + pages * live });
    all += pages;
  }
  return [...sums].sort(([a], [b]) => a - b).map(([cause, { pages, live }]) => ({ cause, part: pages / all, live: live / pages }));
}

function most(parts: Part[], keyOf: (part: Part) => number): number {
  const sums = new Map<number, number>();
  for (const part of parts) sums.set(keyOf(part), (sums.get(keyOf(part)) ?? 0) + part.pages);
  return [...sums].reduce((best, each) => (each[1] > best[1] ? each : best))[0];
}
