// The tree behind the icicle of differences, and how it looks: red where B has more than A, blue where it has less.

import { changeColour, type Theme } from "./colours";
import { type DiffModel, OF_MAPPING, PYTHON, stateOf } from "./diff_data";
import { growthText, sizeText } from "./format";
import type { Skin } from "./icicle";
import { type Boxes, CAUSE, NO_LINE, ROOT, SMALLER } from "./tree";

// How wide a box is: what A or B has there, whichever is more, or by how much they differ. Both of each stack by itself,
// so that what is new stays beside what has gone.
export type Width = "size" | "change";

export interface DiffTreeOptions {
  holds: (cause: number) => boolean; // which causes are shown
  width: Width;
  python: boolean; // Python frames alone, where a stack has any
  inverted: boolean;
}

export class DiffTree implements Boxes {
  readonly parent: number[] = [];
  readonly depth: number[] = [];
  readonly value: number[] = [];
  readonly frame: number[] = []; // or a name of tree.ts
  readonly cause: number[] = [];
  readonly a: number[] = [];
  readonly b: number[] = [];
  readonly variance: number[] = [];
  private readonly firstBelow: number[] = []; // -1: none
  private readonly nextBeside: number[] = [];
  private readonly sorted = new Map<number, number[]>();
  private readonly nodes = new Map<number, number>(); // by parent and frame
  private readonly causeNodes: number[] = [];
  private readonly frames: number; // and names

  constructor(model: DiffModel, options: DiffTreeOptions) {
    this.frames = model.frameKind.length + NAMES;
    this.add(-1, ROOT, 0);
    const places = new Places(model, options, this);
    for (let stack = 0; stack < model.stackCause.length; stack++) {
      const cause = model.stackCause[stack];
      if (!options.holds(cause)) continue;
      const top = (this.causeNodes[cause] ??= this.add(0, CAUSE, cause));
      const node = places.of(stack, top);
      this.a[node] += model.stackA[stack];
      this.b[node] += model.stackB[stack];
      this.variance[node] += model.stackVariance[stack];
    }
    this.sumUp(options.width);
  }

  get size(): number {
    return this.parent.length;
  }

  get total(): number {
    return this.value[0];
  }

  children(node: number): number[] {
    let list = this.sorted.get(node);
    if (!list) {
      list = this.unsorted(node).sort((left, right) => this.value[right] - this.value[left]);
      this.sorted.set(node, list);
    }
    return list;
  }

  change(node: number): number {
    return this.b[node] - this.a[node];
  }

  // The change of all that goes through a node that is searched for.
  matched(isHit: (node: number) => boolean): number {
    let sum = 0;
    const open = this.unsorted(0);
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      if (isHit(node)) sum += this.change(node);
      else for (let below = this.firstBelow[node]; below >= 0; below = this.nextBeside[below]) open.push(below);
    }
    return sum;
  }

  child(parent: number, frame: number): number {
    const key = parent * this.frames + frame + NAMES;
    let node = this.nodes.get(key);
    if (node === undefined) {
      node = this.add(parent, frame, this.cause[parent]);
      this.nodes.set(key, node);
    }
    return node;
  }

  private unsorted(node: number): number[] {
    const list: number[] = [];
    for (let below = this.firstBelow[node]; below >= 0; below = this.nextBeside[below]) list.push(below);
    return list;
  }

  private add(parent: number, frame: number, cause: number): number {
    const node = this.parent.push(parent) - 1;
    this.depth.push(parent < 0 ? 0 : this.depth[parent] + 1);
    this.frame.push(frame);
    this.cause.push(cause);
    for (const sums of [this.value, this.a, this.b, this.variance]) sums.push(0);
    this.firstBelow.push(-1);
    this.nextBeside.push(parent < 0 ? -1 : this.firstBelow[parent]);
    if (parent >= 0) this.firstBelow[parent] = node;
    return node;
  }

  // Callers come before those that they call: until then a node has what is its own.
  private sumUp(width: Width): void {
    const { parent, value, a, b, variance } = this;
    for (let node = 0; node < this.size; node++)
      value[node] = width === "change" ? Math.abs(b[node] - a[node]) : Math.max(Math.abs(a[node]), Math.abs(b[node]));
    for (let node = this.size - 1; node > 0; node--)
      for (const sums of [value, a, b, variance]) sums[parent[node]] += sums[node];
  }
}

const NAMES = 8; // more than there are names of tree.ts for what is no frame

// Where in the tree a stack ends.
class Places {
  private readonly isNamed: Uint8Array; // of each node of stacks: whether it is shown among Python frames alone
  private readonly hasPython: Uint8Array; // itself or a caller
  private readonly known = new Map<number, Int32Array>(); // callers first: node of stacks -> of the tree

  constructor(private readonly model: DiffModel, private readonly options: DiffTreeOptions, private readonly tree: DiffTree) {
    const { nodeParent, nodeFrame, frameKind, frameFile } = model;
    this.isNamed = new Uint8Array(nodeParent.length);
    this.hasPython = new Uint8Array(nodeParent.length);
    for (let node = 1; node < nodeParent.length; node++) {
      const frame = nodeFrame[node];
      // Between an import and the module that it runs stand five frames of the import system: they tell nothing.
      this.isNamed[node] = frameKind[frame] === PYTHON && !frameFile[frame].startsWith("<frozen importlib") ? 1 : 0;
      this.hasPython[node] = this.isNamed[node] | this.hasPython[nodeParent[node]];
    }
  }

  of(stack: number, top: number): number {
    const node = this.model.stackNode[stack];
    if (node <= 0) return this.tree.child(top, node < 0 ? SMALLER : NO_LINE);
    const pythonOnly = this.options.python && this.hasPython[node] === 1;
    return this.options.inverted ? this.callers(node, top, pythonOnly) : this.callees(node, top, pythonOnly);
  }

  private callers(node: number, top: number, pythonOnly: boolean): number {
    const { nodeParent, nodeFrame } = this.model;
    let place = top;
    for (let at = node; at > 0; at = nodeParent[at]) if (!pythonOnly || this.isNamed[at]) place = this.tree.child(place, nodeFrame[at]);
    return place;
  }

  private callees(node: number, top: number, pythonOnly: boolean): number {
    const { nodeParent, nodeFrame } = this.model;
    const key = top * 2 + (pythonOnly ? 1 : 0);
    let known = this.known.get(key);
    if (!known) this.known.set(key, (known = new Int32Array(nodeParent.length)));
    known[0] = top;
    const path: number[] = [];
    let at = node;
    for (; known[at] === 0; at = nodeParent[at]) path.push(at);
    let place = known[at];
    for (let next = path.pop(); next !== undefined; next = path.pop()) {
      if (!pythonOnly || this.isNamed[next]) place = this.tree.child(place, nodeFrame[next]);
      known[next] = place;
    }
    return place;
  }
}

export function diffSkin(model: DiffModel, tree: DiffTree, theme: Theme): Skin {
  const { frameKind, frameLabel, frameFile } = model;
  const searched: string[] = []; // of each frame
  const name = (node: number) => {
    const frame = tree.frame[node];
    if (frame === CAUSE) return model.causes[tree.cause[node]].title;
    return frame === ROOT ? "all" : frame === SMALLER ? "(smaller stacks, summed)" : frame === NO_LINE ? "(no line is known)"
      : frameKind[frame] === OF_MAPPING ? frameLabel[frame] || frameFile[frame] : model.frameText(frame);
  };
  const fileOf = (node: number) => frameFile[tree.frame[node]] ?? "";
  const state = (node: number) => stateOf(tree.a[node], tree.b[node], tree.variance[node]);
  return {
    name,
    size: (node) => growthText(tree.change(node)),
    colour: (node) => {
      if (tree.frame[node] === ROOT) return "";
      const most = Math.max(Math.abs(tree.a[node]), Math.abs(tree.b[node]), 1);
      return changeColour(state(node) === "same" ? 0 : tree.change(node) / most, theme);
    },
    isStriped: (node) => tree.frame[node] < CAUSE,
    isHit: (node, wanted) => {
      const frame = tree.frame[node];
      if (frame < 0) return name(node).toLowerCase().includes(wanted);
      return (searched[frame] ??= `${name(node)}\n${fileOf(node)}`.toLowerCase()).includes(wanted);
    },
    described: (node) => {
      const cause = tree.frame[node] === ROOT || tree.frame[node] === CAUSE ? "" : ` · ${model.causes[tree.cause[node]].title}`;
      const file = fileOf(node);
      return `${name(node)} · ${sizeText(tree.a[node])} in A, ${sizeText(tree.b[node])} in B: ${growthText(tree.change(node))}, ${state(node)}${cause}${file ? ` · ${file}` : ""}`;
    },
  };
}
