// One colour per cause, the same everywhere; what belongs together has one hue. Those of the page's text and lines are
// custom properties of style.css.

export type Theme = "light" | "dark";

// From the bottom of the stack of areas to its top.
export const STACKING = [
  "file_cache", "file_cow", "shared_memory", "fork_shared", "fork_cow", "heap_live", "heap_slack", "heap_retained",
  "heap_metadata", "heap_unsplit", "anonymous", "lazy_free", "stack", "device", "whyrss", "unknown", "not_looked_at",
];

const LIGHT: Record<string, string> = {
  file_cache: "#7fb2e5", file_cow: "#4a7fb8", shared_memory: "#4fb3b0", fork_shared: "#c9b6ec", fork_cow: "#8a5cc9",
  heap_live: "#ef8a47", heap_slack: "#f5b971", heap_retained: "#e3cf6d", heap_metadata: "#b9a57a", anonymous: "#7dbb72",
  heap_unsplit: "#c3d36a", lazy_free: "#a9d3b4", stack: "#d982a0", device: "#7b8ca3", whyrss: "#b4bac4", unknown: "#9a9086",
  not_looked_at: "#c9c4bc",
};

const DARK: Record<string, string> = {
  file_cache: "#4f86bd", file_cow: "#33608f", shared_memory: "#3a8f8c", fork_shared: "#8f7bb8", fork_cow: "#a97ae0",
  heap_live: "#d9772f", heap_slack: "#c4903f", heap_retained: "#a8973c", heap_metadata: "#85765a", anonymous: "#569550",
  heap_unsplit: "#8f9c3c", lazy_free: "#6d9c7b", stack: "#b3607f", device: "#66778e", whyrss: "#767d89", unknown: "#7d746b",
  not_looked_at: "#5d5a56",
};

export function causeColour(slug: string, theme: Theme): string {
  return (theme === "dark" ? DARK : LIGHT)[slug] ?? "#888888";
}

// A neighbouring shade, so that boxes side by side are told apart.
export function shade(colour: string, step: number, theme: Theme): string {
  return theme === "dark" ? mixed(colour, "#000000", [0, 0.06, 0.14][step % 3]) : mixed(colour, "#ffffff", [0, 0.14, 0.26][step % 3]);
}

// WCAG's relative luminance.
function luminance(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

// Text that can be read on it: dark where it stands out enough, else light; of black and white one always does.
const INKS = ["#1a1815", "#000000", "#fbfaf8", "#ffffff"], ENOUGH = 4.5;
export function inkOn(colour: string, wanted: string[] = []): string {
  return [...wanted, ...INKS].find((ink) => contrast(ink, colour) >= ENOUGH) ?? INKS[1];
}

export function themeColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Stripes for what is not known.
export function hatch(context: CanvasRenderingContext2D, colour: string, ratio: number): CanvasPattern | string {
  const size = 6 * ratio, tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  if (!pen) return colour;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2 * ratio;
  pen.beginPath();
  for (const shift of [-size / 2, 0, size / 2, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}

// Of a differential icicle: from -1, gone, over 0, the same, to 1, new.
const CHANGES = {
  light: { less: "#3f7fc4", same: "#e0ddd6", more: "#d4513a" },
  dark: { less: "#3f7cba", same: "#3b3e44", more: "#c75540" },
};

export function changeColour(part: number, theme: Theme): string {
  const { less, same, more } = CHANGES[theme];
  if (part === 0) return same;
  const strength = Math.sqrt(Math.min(Math.abs(part), 1)); // a tenth is to be seen, a few bytes are not
  return mixed(same, part > 0 ? more : less, strength);
}

export function mixed(from: string, to: string, part: number): string {
  const channels = [1, 3, 5].map((at) => {
    const value = Number.parseInt(from.slice(at, at + 2), 16);
    return Math.round(value + (Number.parseInt(to.slice(at, at + 2), 16) - value) * part).toString(16).padStart(2, "0");
  });
  return `#${channels.join("")}`;
}
