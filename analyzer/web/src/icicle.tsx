// Where the memory was asked for (or touched, or copied), as an icicle on a canvas: below each cause its callers, as wide
// as what they hold.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { hatch, inkOn, mixed, themeColour, type Theme } from "./colours";
import { sizeText } from "./format";
import { usePrinting } from "./list";
import { type Box, type Boxes, layout } from "./tree";

const ROW = 22, LEAST_PIXELS = 1.5, MOST_ROWS = 400;

// How a node of the tree looks; what its name and colour say is another thing on each page.
export interface Skin {
  name: (node: number) => string;
  size: (node: number) => string; // beside the name, where there is room
  colour: (node: number) => string; // #rrggbb; of the root, which all are below, nothing
  isStriped: (node: number) => boolean;
  isHit: (node: number, wanted: string) => boolean;
  described: (node: number) => string;
}

interface Properties {
  tree: Boxes;
  skin: Skin;
  theme: Theme;
  search: string;
  what: string; // "growth", as the label says it
  zoom: number;
  onZoom: (node: number) => void;
}

function draw(canvas: HTMLCanvasElement, boxes: Box[], focus: number, search: string, properties: Properties): void {
  const { tree, skin, zoom } = properties;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  const rows = boxes.reduce((most, box) => Math.max(most, box.row), 0) + 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(rows * ROW * ratio);
  canvas.style.height = `${rows * ROW}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(ratio, ratio);
  pen.font = "12px ui-sans-serif, system-ui, sans-serif";
  pen.textBaseline = "middle";
  const ground = themeColour("card"), plain = themeColour("raised");
  const wanted = search.toLowerCase(), muted = themeColour("muted"), ink = themeColour("ink");
  const stripes = hatch(pen, themeColour("muted"), 1);
  for (const box of boxes) {
    const { node } = box, hit = wanted !== "" && skin.isHit(node, wanted);
    const faded = wanted !== "" && !hit, x = box.x * width, wide = Math.max(box.width * width - 1, 0.6), y = box.row * ROW;
    const own = skin.colour(node), colour = own || plain;
    const above = node !== zoom && box.width === 1 && box.row < tree.depth[zoom];
    const seen = mixed(ground, colour, above ? 0.45 : faded ? 0.28 : 1); // text is chosen for what is seen, so no alpha
    pen.fillStyle = seen;
    pen.fillRect(x, y, wide, ROW - 1);
    if (skin.isStriped(node)) {
      pen.fillStyle = stripes;
      pen.globalAlpha = above || faded ? 0.2 : 0.5;
      pen.fillRect(x, y, wide, ROW - 1);
      pen.globalAlpha = 1;
    }
    if (wide > 26) {
      const size = wide > 190 ? `  ${skin.size(node)}` : "";
      const text = fitted(pen, skin.name(node), wide - 10 - (size ? pen.measureText(size).width : 0)) + size;
      if (skin.isStriped(node)) {
        pen.strokeStyle = seen;
        pen.lineWidth = 4;
        pen.strokeText(text, x + 5, y + ROW / 2);
      }
      pen.fillStyle = inkOn(seen, faded || above ? [muted] : own === "" ? [ink] : []);
      pen.fillText(text, x + 5, y + ROW / 2);
    }
    if (hit || node === focus) {
      pen.strokeStyle = node === focus ? themeColour("ink") : themeColour("accent");
      pen.lineWidth = node === focus ? 2 : 1.5;
      pen.strokeRect(x + 1, y + 1, Math.max(wide - 2, 0.5), ROW - 3);
    }
  }
  if (boxes.length === 1) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, width, ROW);
  }
}

function fitted(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (text.length > 400) text = text.slice(0, 400);
  if (pen.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
}

export function Icicle(properties: Properties) {
  const { tree, skin, theme, search, what, zoom, onZoom } = properties;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [focus, setFocus] = useState(-1);
  const [hover, setHover] = useState(-1);
  const boxes = useMemo(
    () => layout(tree, zoom, LEAST_PIXELS / Math.max(width, 300)).filter((box) => box.row < MOST_ROWS),
    [tree, zoom, width],
  );

  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const printing = usePrinting();
  useLayoutEffect(() => {
    if (canvas.current) draw(canvas.current, boxes, focus, search, properties);
  }, [boxes, skin, focus, search, theme, width, printing]);

  const at = (event: MouseEvent): number => {
    const element = canvas.current as HTMLCanvasElement, rect = element.getBoundingClientRect();
    const x = (event.clientX - rect.left) / rect.width, row = Math.floor((event.clientY - rect.top) / ROW);
    return boxes.find((box) => box.row === row && x >= box.x && x < box.x + box.width)?.node ?? -1;
  };
  const onKey = (event: KeyboardEvent) => {
    const next = moved(tree, boxes, focus < 0 ? zoom : focus, event.key);
    if (next >= 0) setFocus(next);
    else if (event.key === "Enter" || event.key === " ") onZoom(focus < 0 ? 0 : focus);
    else if (event.key === "Escape" || event.key === "Backspace") onZoom(event.key === "Escape" ? 0 : Math.max(tree.parent[zoom], 0));
    else return;
    event.preventDefault();
  };
  const told = hover >= 0 ? hover : focus >= 0 ? focus : zoom;
  return (
    <div class="icicle">
      <p class="told" aria-live="polite" data-testid="icicle-told">
        {tree.total > 0 ? skin.described(Math.min(told, tree.size - 1)) : `No ${what} here.`}
      </p>
      <canvas
        ref={canvas} tabIndex={0} role="application" data-testid="icicle"
        aria-label={`Icicle of ${what}, ${sizeText(tree.total)} in all. Arrow keys move, Enter enlarges a box, Escape shows all. The table below holds the same figures.`}
        onClick={(event) => {
          const node = at(event);
          if (node >= 0) onZoom(node === zoom ? Math.max(tree.parent[node], 0) : node);
        }}
        onMouseMove={(event) => setHover(at(event))}
        onMouseLeave={() => setHover(-1)}
        onFocus={() => setFocus(focus < 0 ? zoom : focus)}
        onBlur={() => setFocus(-1)}
        onKeyDown={onKey}
      />
    </div>
  );
}

// Up to the caller, down to the largest below, left and right among neighbours of one row.
function moved(tree: Boxes, boxes: Box[], node: number, key: string): number {
  const box = boxes.find((each) => each.node === node);
  if (!box) return key.startsWith("Arrow") ? boxes[0].node : -1;
  if (key === "ArrowUp") return tree.parent[node] >= 0 ? tree.parent[node] : node;
  if (key === "ArrowDown") return boxes.find((each) => each.row === box.row + 1 && tree.parent[each.node] === node)?.node ?? node;
  if (key !== "ArrowLeft" && key !== "ArrowRight") return -1;
  const row = boxes.filter((each) => each.row === box.row).sort((a, b) => a.x - b.x);
  const place = row.indexOf(box) + (key === "ArrowLeft" ? -1 : 1);
  return row[Math.min(Math.max(place, 0), row.length - 1)].node;
}
