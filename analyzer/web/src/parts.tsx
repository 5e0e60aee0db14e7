// Small pieces that several sections use.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { causeColour, type Theme } from "./colours";
import type { Model } from "./data";
import { growthText, sizeText } from "./format";

// A size for people, with its bytes for programs and for those who point at it.
export function Size({ bytes, estimate, name }: { bytes: number | null; estimate?: boolean; name?: string }) {
  if (bytes === null) return <span class="unknown" data-name={name}>not known</span>;
  return (
    <data value={bytes} data-name={name} title={`${bytes.toLocaleString("en")} bytes${estimate ? ", an estimate" : ""}`}>
      {estimate ? "≈ " : ""}{sizeText(bytes)}
    </data>
  );
}

export function Growth({ bytes, name, noise }: { bytes: number; name?: string; noise?: boolean }) {
  return (
    <data value={bytes} data-name={name} class={noise ? "same" : bytes < 0 ? "less" : bytes > 0 ? "more" : "same"} title={`${bytes.toLocaleString("en")} bytes`}>
      {growthText(bytes)}
    </data>
  );
}

export function Swatch({ model, cause, theme }: { model: Pick<Model, "causes">; cause: number; theme: Theme }) {
  const { slug } = model.causes[cause];
  const striped = slug === "unknown" || slug === "not_looked_at";
  return <span class={striped ? "swatch striped" : "swatch"} style={{ backgroundColor: causeColour(slug, theme) }} aria-hidden="true" />;
}

export function Choice<T extends string>({ label, value, options, onChange }: {
  label: string; value: T; options: [T, string][]; onChange: (value: T) => void;
}) {
  return (
    <div class="choice-group" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={value === key} onClick={() => onChange(key)}>{text}</button>
      ))}
    </div>
  );
}

export function Card({ id, title, aside, children }: { id: string; title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card" id={id} aria-labelledby={`${id}-title`}>
      <div class="card-head">
        <h2 id={`${id}-title`}>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

export function ThemeButton({ theme, onTheme }: { theme: Theme; onTheme: () => void }) {
  return (
    <button type="button" class="theme" onClick={onTheme} aria-label={theme === "dark" ? "Light theme" : "Dark theme"}>
      {theme === "dark" ? "light" : "dark"}
    </button>
  );
}

// "/" goes there from anywhere.
export function Search({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  useEffect(() => {
    const seek = (event: KeyboardEvent) => {
      if (event.key !== "/" || (event.target as HTMLElement).tagName === "INPUT") return;
      event.preventDefault();
      document.getElementById("search")?.focus();
    };
    window.addEventListener("keydown", seek);
    return () => window.removeEventListener("keydown", seek);
  }, []);
  return (
    <label class="search">
      <span class="unseen">Search functions and files</span>
      <input id="search" type="search" value={value} placeholder="search  /" onInput={(event) => onChange((event.target as HTMLInputElement).value)} />
    </label>
  );
}
