// Figures and names as people read them; sizes as analyzer/report/wording/format.cc writes them.

const KIB = 1024, MIB = KIB * 1024, GIB = MIB * 1024;

export function sizeText(bytes: number): string {
  const magnitude = Math.abs(bytes);
  if (magnitude >= 10 * GIB) return `${(bytes / GIB).toFixed(1)} GiB`;
  if (magnitude >= 9.95 * MIB) return `${(bytes / MIB).toFixed(0)} MiB`;
  if (magnitude >= MIB) return `${(bytes / MIB).toFixed(1)} MiB`;
  if (magnitude >= KIB) return `${(bytes / KIB).toFixed(0)} KiB`;
  return `${bytes} B`;
}

export function growthText(bytes: number): string {
  return bytes > 0 ? `+${sizeText(bytes)}` : bytes < 0 ? `−${sizeText(-bytes)}` : "0";
}

export function secondsText(seconds: number): string {
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(2)} h`;
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  return seconds >= 10 ? `${seconds.toFixed(1)} s` : `${seconds.toFixed(seconds < 1 ? 3 : 2)} s`;
}

/** "1 event", "1,200 events". */
export function countText(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Names come from programs, and may hold anything: what would act on a terminal or turn text around is shown as a box, and
// the lines of `python -c` as one.
const ACTING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
export function printable(text: string): string {
  return text.replace(/[\t\n\r]+/g, " ").replace(ACTING, "\ufffd");
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
