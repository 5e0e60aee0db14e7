// The tree behind the icicle: below each cause the frames of its stacks, callers first (or, inverted, the innermost
// first), with the bytes of all stacks that go through them. A node's children are made when they are asked for, which
// is when it is wide enough to be seen: of 100,000 stacks a screen shows a few thousand boxes.

import { BY_KERNEL, type Metric, NAMED, NOT_KNOWN, type Parts, SMALLER_SITES } from "./account";
import type { Model } from "./data";
import { baseName } from "./format";

export interface TreeOptions {
  metric: Metric;
  python: boolean; // Python frames alone, where a stack has any
  inverted: boolean;
}

// Names that are no frames.
export const ROOT = -1, CAUSE = -2, SMALLER = -3, UNKNOWN = -4, KERNEL = -5, NO_LINE = -6;
export const MAPPING = -7; // and below: a mapping of which no line is known

// Frames of the stack table, as the trees of all intervals use them.
interface StackShape {
  childStart: Uint32Array; // nodes below each node, in `children`
  children: Uint32Array;
  isPython: Uint8Array; // of each node: shown among Python frames alone
  hasPython: Uint8Array; // itself or a caller
}

const shapes = new WeakMap<Model, StackShape>();

function shapeOf(model: Model): StackShape {
  const known = shapes.get(model);
  if (known) return known;
  const { nodeParent, nodeFrame } = model, count = nodeParent.length;
  // Between an import and the module that it runs stand five frames of the import system: they tell nothing.
  const shown = Uint8Array.from(model.frameKind, (kind, frame) =>
    kind === 0 && !model.strings[model.frameFile[frame]].startsWith("<frozen importlib") ? 1 : 0,
  );
  const shape: StackShape = {
    childStart: new Uint32Array(count + 2), children: new Uint32Array(count),
    isPython: new Uint8Array(count), hasPython: new Uint8Array(count),
  };
  for (let node = 1; node < count; node++) {
    shape.childStart[nodeParent[node] + 2]++;
    shape.isPython[node] = shown[nodeFrame[node]];
    shape.hasPython[node] = shape.isPython[node] | shape.hasPython[nodeParent[node]];
  }
  for (let i = 2; i < shape.childStart.length; i++) shape.childStart[i] += shape.childStart[i - 1];
  for (let node = 1; node < count; node++) shape.children[shape.childStart[nodeParent[node] + 1]++] = node;
  shapes.set(model, shape);
  return shape;
}

// Stacks that are shown alike: with their Python frames alone, or with all.
interface Kind {
  pythonOnly: boolean;
  value: Float64Array | null; // callers first: of each node of the stack table, with all below it
}

// What a node stands for: nodes of the stack table (callers first), or stacks and how far each is followed (inverted).
interface Place {
  kind: Kind;
  nodes: number[];
  own: number[]; // inverted: bytes of each
}

// Where what lies behind a frame is collected; these bytes count in it.
type Group = (frame: number, kind: Kind, bytes: number) => Place;

// What an icicle can show.
export interface Boxes {
  readonly size: number;
  readonly total: number;
  readonly parent: number[]; // of the root: -1
  readonly depth: number[];
  readonly value: number[];
  children(node: number): number[]; // largest first
}

export class Tree implements Boxes {
  readonly parent: number[] = [];
  readonly frame: number[] = []; // or one of the names above
  readonly cause: number[] = [];
  readonly depth: number[] = [];
  readonly value: number[] = [];
  grew = 0; // sums by sign of what each stack holds of a cause, before those of the other sign were left out
  shrank = 0;
  private readonly below: (number[] | null)[] = [];
  private readonly places: Place[][] = [];
  private readonly shape: StackShape;
  private readonly own: (Float64Array | undefined)[] = []; // by cause: of each stack

  constructor(private readonly model: Model, parts: Parts, private readonly options: TreeOptions) {
    this.shape = shapeOf(model);
    this.add(-1, ROOT, 0, 0);
    const others = this.sumUp(parts);
    const causes: number[] = [];
    model.causes.forEach((_, cause) => {
      const node = this.addCause(cause, others.filter((other) => other.cause === cause));
      if (node >= 0) causes.push(node);
    });
    this.value[0] = causes.reduce((sum, node) => sum + this.value[node], 0);
    this.below[0] = this.largestFirst(causes);
  }

  get size(): number {
    return this.parent.length;
  }

  get total(): number {
    return this.value[0];
  }

  // Largest first.
  children(node: number): number[] {
    return (this.below[node] ??= this.expand(node));
  }

  // Bytes of the stacks that go through a frame for which `isHit` holds.
  matched(isHit: (frame: number, cause: number) => boolean): number {
    const { nodeParent, nodeFrame, stackNode } = this.model;
    const hits = new Uint8Array(nodeParent.length);
    const ofFrame = Uint8Array.from(this.model.frameKind, (_, frame) => (isHit(frame, -1) ? 1 : 0));
    for (let node = 1; node < hits.length; node++) hits[node] = ofFrame[nodeFrame[node]] | hits[nodeParent[node]];
    let sum = 0;
    for (const causeNode of this.children(0)) {
      const cause = this.cause[causeNode], own = this.own[cause];
      if (isHit(CAUSE, cause)) {
        sum += this.value[causeNode];
        continue;
      }
      for (let stack = 1; own && stack < own.length; stack++) if (own[stack] > 0 && hits[stackNode[stack]]) sum += own[stack];
      for (const child of this.children(causeNode)) if (this.frame[child] < 0 && isHit(this.frame[child], cause)) sum += this.value[child];
    }
    return sum;
  }

  private add(parent: number, frame: number, cause: number, value: number): number {
    this.parent.push(parent);
    this.frame.push(frame);
    this.cause.push(cause);
    this.depth.push(parent < 0 ? 0 : this.depth[parent] + 1);
    this.value.push(value);
    this.below.push(null);
    this.places.push([]);
    return this.parent.length - 1;
  }

  private largestFirst(nodes: number[]): number[] {
    return nodes.sort((a, b) => this.value[b] - this.value[a] || a - b);
  }

  // Of the wanted sign.
  private counted(bytes: number): number {
    if (bytes > 0) this.grew += bytes;
    else this.shrank -= bytes;
    return Math.max(this.options.metric === "shrinkage" ? -bytes : bytes, 0);
  }

  private sumUp(parts: Parts): { cause: number; frame: number; bytes: number }[] {
    const { metric } = this.options, stacks = this.model.stackNode.length;
    const weight = metric === "resident" ? parts.resident : metric === "peak" ? parts.peak : parts.growth;
    const others = new Map<string, { cause: number; frame: number; bytes: number }>();
    for (let i = 0; i < parts.count; i++) {
      const cause = parts.cause[i], kind = parts.kind[i], stack = parts.stack[i];
      if (stack > 0 && (kind === NAMED || kind === BY_KERNEL)) {
        (this.own[cause] ??= new Float64Array(stacks))[stack] += weight[i];
        continue;
      }
      const mapping = parts.mapping[i];
      const frame = kind === SMALLER_SITES ? SMALLER : kind === NOT_KNOWN ? UNKNOWN : kind === BY_KERNEL ? KERNEL
        : mapping >= 0 ? MAPPING - mapping : NO_LINE;
      const key = `${cause} ${frame}`, other = others.get(key);
      if (other) other.bytes += weight[i];
      else others.set(key, { cause, frame, bytes: weight[i] });
    }
    for (const own of this.own) for (let stack = 0; own && stack < own.length; stack++) own[stack] = this.counted(own[stack]);
    for (const other of others.values()) other.bytes = this.counted(other.bytes);
    return [...others.values()].filter((other) => other.bytes > 0);
  }

  private addCause(cause: number, others: { frame: number; bytes: number }[]): number {
    const own = this.own[cause], { stackNode } = this.model;
    const kinds: Place[] = [true, false].map((pythonOnly) => ({ kind: { pythonOnly, value: null }, nodes: [], own: [] }));
    let sum = others.reduce((bytes, other) => bytes + other.bytes, 0);
    for (let stack = 1; own && stack < own.length; stack++) {
      if (!(own[stack] > 0)) continue;
      sum += own[stack];
      const place = kinds[this.options.python && this.shape.hasPython[stackNode[stack]] ? 0 : 1];
      place.nodes.push(stackNode[stack]);
      place.own.push(own[stack]);
    }
    if (!(sum > 0)) return -1;
    const node = this.add(0, CAUSE, cause, sum);
    if (!this.options.inverted) for (const place of kinds) if (place.nodes.length > 0) this.beginAtCallers(place);
    this.places[node] = kinds.filter((place) => place.nodes.length > 0);
    const named = this.expand(node), more = others.map((other) => this.add(node, other.frame, cause, other.bytes));
    this.below[node] = this.largestFirst([...named, ...more]);
    return node;
  }

  private beginAtCallers(place: Place): void {
    const { nodeParent } = this.model, value = new Float64Array(nodeParent.length);
    for (let i = 0; i < place.nodes.length; i++) value[place.nodes[i]] += place.own[i];
    for (let node = value.length - 1; node > 0; node--) value[nodeParent[node]] += value[node];
    place.kind.value = value;
    place.nodes = [0];
    place.own = [];
  }

  private expand(node: number): number[] {
    const groups = new Map<number, { value: number; places: Place[] }>();
    const group: Group = (frame, kind, bytes) => {
      let found = groups.get(frame);
      if (!found) groups.set(frame, (found = { value: 0, places: [] }));
      found.value += bytes;
      let into = found.places.find((place) => place.kind === kind);
      if (!into) found.places.push((into = { kind, nodes: [], own: [] }));
      return into;
    };
    for (const place of this.places[node]) {
      if (place.kind.value) this.callees(place, place.kind.value, group);
      else this.callers(place, group);
    }
    this.places[node] = [];
    const made: number[] = [];
    for (const [frame, { value, places }] of groups) {
      const child = this.add(node, frame, this.cause[node], value);
      this.places[child] = places;
      made.push(child);
    }
    return this.largestFirst(made);
  }

  private isHidden(node: number, kind: Kind): boolean {
    return kind.pythonOnly && this.shape.isPython[node] === 0;
  }

  private callees(place: Place, value: Float64Array, group: Group): void {
    const { childStart, children } = this.shape;
    const open = [...place.nodes];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      for (let i = childStart[node]; i < childStart[node + 1]; i++) {
        const child = children[i];
        if (!(value[child] > 0)) continue;
        if (this.isHidden(child, place.kind)) {
          open.push(child);
          continue;
        }
        group(this.model.nodeFrame[child], place.kind, value[child]).nodes.push(child);
      }
    }
  }

  private callers(place: Place, group: Group): void {
    const { nodeParent, nodeFrame } = this.model;
    for (let i = 0; i < place.nodes.length; i++) {
      let node = place.nodes[i];
      while (node > 0 && this.isHidden(node, place.kind)) node = nodeParent[node];
      if (node === 0) continue;
      const into = group(nodeFrame[node], place.kind, place.own[i]);
      into.nodes.push(nodeParent[node]);
      into.own.push(place.own[i]);
    }
  }
}

export function nodeName(model: Model, tree: Tree, node: number): string {
  return tree.frame[node] === CAUSE ? model.causes[tree.cause[node]].title : frameName(model, tree.frame[node]);
}

export function frameName(model: Model, frame: number): string {
  if (frame <= MAPPING) return baseName(mappingOf(model, frame)) || mappingOf(model, frame);
  switch (frame) {
    case ROOT: return "all";
    case SMALLER: return "(smaller sites, summed)";
    case UNKNOWN: return "(not known by whom)";
    case KERNEL: return "(the kernel, within a call)";
    case NO_LINE: return "(no line is known)";
    default: return model.frameText(frame);
  }
}

export function mappingOf(model: Model, frame: number): string {
  return frame <= MAPPING ? model.strings[MAPPING - frame] : "";
}

// Whether a name, or the file of a frame, holds what is searched for.
export function isHit(model: Model, frame: number, cause: number, wanted: string): boolean {
  const name = frame === CAUSE ? model.causes[cause].title : frameName(model, frame);
  return name.toLowerCase().includes(wanted) || (frame >= 0 && model.strings[model.frameFile[frame]].toLowerCase().includes(wanted));
}

export interface Box {
  node: number;
  x: number; // 0 to 1
  width: number;
  row: number;
}

// Below a box that is too narrow to tell its callers apart nothing is drawn: deep imports would fill screens.
const GOES_DEEPER = 6;

// What is wide enough to be seen: the callers of `zoom` as full rows, and what is below it.
export function layout(tree: Boxes, zoom: number, least: number): Box[] {
  const boxes: Box[] = [];
  const path: number[] = [];
  for (let node = zoom; node >= 0; node = tree.parent[node]) path.unshift(node);
  path.forEach((node, row) => boxes.push({ node, x: 0, width: 1, row }));
  const whole = tree.value[zoom];
  if (!(whole > 0)) return boxes;
  const open: Box[] = [boxes[boxes.length - 1]];
  for (let box = open.pop(); box; box = open.pop()) {
    let x = box.x;
    for (const node of tree.children(box.node)) {
      const width = tree.value[node] / whole;
      if (width < least) break; // the largest come first
      const below = { node, x, width, row: box.row + 1 };
      boxes.push(below);
      if (width >= least * GOES_DEEPER) open.push(below);
      x += width;
    }
  }
  return boxes;
}
