/** The choice of colours: the system's, light or dark. */
import { choice } from "./dom";
import type { Theme } from "./palette";

export function themeChoice(changed: (theme: Theme) => void): { element: HTMLElement; apply: () => void } {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let wanted: Theme | "system" = "system";
  const apply = (): void => {
    const theme = wanted === "system" ? (dark.matches ? "dark" : "light") : wanted;
    document.documentElement.dataset.theme = theme;
    changed(theme);
  };
  dark.addEventListener("change", apply);
  const themes = [
    ["system", "system"],
    ["light", "light"],
    ["dark", "dark"],
  ] as const;
  const element = choice("Colours", themes, "system", (value) => {
    wanted = value as Theme | "system";
    apply();
  });
  return { element, apply };
}
