// Dark or light: as the system has it, until a button is pressed; on paper light.

import { useEffect, useState } from "preact/hooks";
import type { Theme } from "./colours";

export function useTheme(): [Theme, () => void] {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const [chosen, setChosen] = useState<Theme | null>(null);
  const [dark, setDark] = useState(system.matches);
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const changed = () => setDark(system.matches);
    const print = (event: Event) => setPrinting(event.type === "beforeprint");
    system.addEventListener("change", changed);
    window.addEventListener("beforeprint", print);
    window.addEventListener("afterprint", print);
    return () => {
      system.removeEventListener("change", changed);
      window.removeEventListener("beforeprint", print);
      window.removeEventListener("afterprint", print);
    };
  }, []);
  const theme: Theme = printing ? "light" : (chosen ?? (dark ? "dark" : "light"));
  document.documentElement.dataset.theme = theme; // before the canvases ask for its colours
  return [theme, () => setChosen(theme === "dark" ? "light" : "dark")];
}
