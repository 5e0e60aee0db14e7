// What analyzer/report/diff/diff_html.cc wrote: the document of `diff --format json`, and the stacks of both sides.

import { callTree, type Cause, Columns } from "./data";

export type State = "same" | "new" | "gone" | "grown" | "shrunk";
export const STATES: State[] = ["new", "gone", "grown", "shrunk", "same"];

export interface DiffFigure {
  a: number;
  b: number;
  change: number;
  percent: number | null;
  standard_error: number;
  state: State;
}

export interface DiffSide {
  name: string;
  path: string;
  host: string;
  command: string[];
  started: string;
  mode: string;
  complete: boolean;
  lost_events: number;
  interval: { from_s: number; to_s: number };
  pids: number[];
  process_count: number; // of them, in the interval
  read: boolean; // false: its figures say nothing
}

export interface DiffLine extends DiffFigure {
  cause: string;
  line: string;
  function: string;
  file: string;
  line_a: number | null;
  line_b: number | null;
}

export interface DiffDocument {
  value: "growth" | "resident" | "at_peak";
  a: DiffSide;
  b: DiffSide;
  rss: DiffFigure;
  peak_rss: DiffFigure;
  peak_pss: DiffFigure | null;
  causes: (DiffFigure & { cause: string })[];
  lines: DiffLine[];
}

export const PYTHON = 0, OF_MAPPING = 2; // kinds of frames; 1: native

export interface DiffHeader {
  format: number;
  kind: "diff";
  diff: DiffDocument;
  parts: [string, string]; // of each recording, what is compared; "": all of it
  doubts: string[];
  pss_estimate: boolean;
  causes: Cause[];
  lines_shown: number; // of diff.lines; what follows are sums of the others, per cause
  lines: number;
  stacks_left_out: number;
  strings: string[];
  columns: ConstructorParameters<typeof Columns>[0];
}

export class DiffModel {
  readonly diff: DiffDocument;
  readonly causes: Cause[];
  readonly causeOfSlug: Map<string, number>;

  readonly frameKind: Int32Array;
  readonly frameLabel: string[];
  readonly frameFile: string[];
  readonly frameLineA: Int32Array;
  readonly frameLineB: Int32Array;
  readonly nodeParent: Int32Array; // of stacks, which share their callers; of node 0, below the outermost, 0
  readonly nodeFrame: Int32Array; // of node 0: -1
  readonly stackCause: Int32Array;
  readonly stackNode: Int32Array; // where it ends; 0: nothing is known, -1: the sum of those that were left out
  readonly stackA: Float64Array;
  readonly stackB: Float64Array;
  readonly stackVariance: Float32Array;

  constructor(readonly header: DiffHeader, bytes: Uint8Array) {
    this.diff = header.diff;
    this.causes = header.causes;
    this.causeOfSlug = new Map(header.causes.map((cause, i) => [cause.slug, i]));
    const columns = new Columns(header.columns, bytes);
    const texts = (name: string) => Array.from(columns.whole(name), (number) => header.strings[number]);
    this.frameKind = Int32Array.from(columns.whole("frame_kind"));
    this.frameLabel = texts("frame_label");
    this.frameFile = texts("frame_file");
    this.frameLineA = Int32Array.from(columns.whole("frame_line_a"));
    this.frameLineB = Int32Array.from(columns.whole("frame_line_b"));
    [this.nodeParent, this.nodeFrame] = callTree(columns);
    this.stackCause = Int32Array.from(columns.whole("stack_cause"));
    this.stackNode = Int32Array.from(columns.whole("stack_node"));
    this.stackA = columns.whole("stack_a");
    this.stackB = columns.whole("stack_b");
    this.stackVariance = columns.float32("stack_variance");
  }

  frameText(frame: number): string {
    return `${this.frameLabel[frame] || "(not known)"}${movedText(this.frameLineA[frame], this.frameLineB[frame])}`;
  }
}

export function movedText(lineA: number | null, lineB: number | null): string {
  return lineA && lineB && lineA !== lineB ? ` (line ${lineA} in A)` : "";
}

// As DiffFigure::state in analyzer/report/diff/diff.cc.
export function stateOf(a: number, b: number, variance: number): State {
  const change = b - a;
  if (change === 0 || change * change <= 4 * variance) return "same";
  if (a === 0 && b > 0) return "new";
  if (b === 0 && a > 0) return "gone";
  return change > 0 ? "grown" : "shrunk";
}
