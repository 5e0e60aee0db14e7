// How the icicle of one recording looks: coloured by cause.

import { causeColour, shade, type Theme } from "./colours";
import type { Model } from "./data";
import { sizeText } from "./format";
import type { Skin } from "./icicle";
import { CAUSE, isHit, MAPPING, mappingOf, nodeName, ROOT, type Tree } from "./tree";

export function causeSkin(model: Model, tree: Tree, theme: Theme): Skin {
  const slugOf = (node: number) => model.causes[tree.cause[node]].slug;
  return {
    name: (node) => nodeName(model, tree, node),
    size: (node) => sizeText(tree.value[node]),
    colour: (node) => (tree.frame[node] === ROOT ? ""
      : shade(causeColour(slugOf(node), theme), tree.depth[node] <= 1 ? 0 : (Math.abs(tree.frame[node]) % 2) + 1, theme)),
    isStriped: (node) => (tree.frame[node] <= -3 && tree.frame[node] > MAPPING) || slugOf(node) === "unknown" || slugOf(node) === "not_looked_at",
    isHit: (node, wanted) => isHit(model, tree.frame[node], tree.cause[node], wanted),
    described: (node) => described(model, tree, node),
  };
}

function described(model: Model, tree: Tree, node: number): string {
  const share = tree.total > 0 ? (tree.value[node] / tree.total) * 100 : 0;
  const name = nodeName(model, tree, node);
  const frame = tree.frame[node];
  const place = frame >= 0 ? model.strings[model.frameFile[frame]] || model.strings[model.frameModule[frame]] : mappingOf(model, frame);
  const cause = frame === ROOT || frame === CAUSE ? "" : ` · ${model.causes[tree.cause[node]].title}`;
  return `${name} · ${sizeText(tree.value[node])} · ${share.toFixed(share < 10 ? 1 : 0)} %${cause}${place ? ` · ${place}` : ""}`;
}
