/** The page: inputs, filters, and the views. */
import { Context } from "./context";
import { KINDS, type Data } from "./data";
import { choice, h } from "./dom";
import { makeView, type View } from "./section";
import * as text from "./text";
import { themeChoice } from "./theme";
import { latency } from "./views/latency";
import { makeMap } from "./views/map";
import { scatter } from "./views/scatter";
import { seek } from "./views/seek";
import { experiments, fairness, files, stageFiles, totals } from "./views/tables";
import { timeline } from "./views/timeline";

export function start(root: HTMLElement, data: Data): void {
  const context = new Context(data);
  const views: View[] = [
    makeMap(context),
    ...[seek, scatter, latency, timeline, totals, stageFiles, files, fairness, experiments].map((spec) =>
      makeView(spec, context),
    ),
  ];
  // Views are drawn when they come near the screen, and again when something has changed since.
  const stale = new Set(views);
  const near = new Set<View>();
  const drawThose = (those: Iterable<View>): void => {
    for (const view of those) {
      if (!stale.delete(view)) continue;
      view.draw();
      view.element.dataset.drawn = "true";
    }
  };
  const drawAll = (): void => {
    for (const view of views) {
      stale.add(view);
      delete view.element.dataset.drawn;
    }
    drawThose(near);
  };
  const filterChanged = (): void => {
    context.forget();
    drawAll();
  };
  const theme = themeChoice((chosen) => {
    context.theme = chosen;
    drawAll();
  });
  const links = views.map((view) => h("a", { href: `#${view.id}` }, view.title));
  root.replaceChildren(
    h(
      "header",
      {},
      h("h1", {}, "headstart report"),
      h("span", { class: "generator" }, data.generator),
      theme.element,
    ),
    h("nav", { "aria-label": "Views" }, ...links),
    h(
      "main",
      {},
      inputCards(context, drawAll),
      filters(context, filterChanged),
      ...views.map((view) => view.element),
    ),
  );
  context.onTime = views.map((view) => () => {
    if (!stale.has(view)) view.setTime();
  });
  theme.apply();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const view = views.find((each) => each.element === entry.target)!;
        if (entry.isIntersecting) near.add(view);
        else near.delete(view);
      }
      drawThose(near);
    },
    { rootMargin: "400px" },
  );
  for (const view of views) observer.observe(view.element);
  addEventListener("beforeprint", () => drawThose(views));
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(root.clientWidth - width) < 2) return;
    width = root.clientWidth;
    requestAnimationFrame(drawAll);
  }).observe(root);
}

function inputCards(context: Context, changed: () => void): HTMLElement {
  const cards = context.data.runs.map((run, index) => {
    const box = h("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => {
      context.shown[index] = box.checked;
      changed();
    });
    const facts = [
      run.kind,
      run.medium,
      run.ready === null ? null : `ready ${text.seconds(run.ready)}`,
      run.requests && `${text.count(run.requests.count)} requests`,
      run.disk && text.bytes(run.disk.blocks * 4096),
    ];
    return h(
      "li",
      {},
      h("label", {}, box, h("strong", {}, context.nameOf(run))),
      h("div", {}, facts.filter((fact) => fact !== null && fact !== "").join(" · ")),
      run.command === null ? null : h("code", {}, run.command),
      ...run.notes.map((note) => h("div", { class: "note" }, note)),
    );
  });
  return h("ul", { class: "inputs", "aria-label": "Inputs" }, ...cards);
}

function filters(context: Context, changed: () => void): HTMLElement {
  const { data } = context;
  const fields = h("div", { class: "fields" });
  const build = (): void => {
    const { filter } = context;
    const set = (change: () => void): void => {
      change();
      changed();
    };
    const kinds = KINDS.map((kind, index) => {
      const box = h("input", { type: "checkbox", checked: filter.kinds[index]!, name: kind });
      box.addEventListener("change", () => set(() => (filter.kinds[index] = box.checked)));
      return h("label", {}, box, kind);
    });
    const processes = data.processes.map((name, index) => [String(index), text.shorten(name, 40)] as const);
    const process = choice("Process", [["", "all"], ...processes.slice(0, 500)], "", (value) =>
      set(() => (filter.process = value === "" ? null : Number(value))),
    );
    const time = (name: "from" | "to", label: string): HTMLElement => {
      const field = h("input", {
        type: "number",
        name,
        min: 0,
        step: "any",
        value: Number(filter[name].toFixed(3)),
      });
      field.addEventListener("change", () => {
        const value = field.value === "" ? NaN : Number(field.value);
        set(() => (filter[name] = Number.isFinite(value) ? value : context.noFilter()[name]));
      });
      return h("label", {}, label, field);
    };
    const reset = h(
      "button",
      {
        type: "button",
        click: () =>
          set(() => {
            context.filter = context.noFilter();
            build();
          }),
      },
      "Reset",
    );
    const group = h("fieldset", {}, h("legend", {}, "Kinds"), ...kinds);
    fields.replaceChildren(group, process, time("from", "From (s)"), time("to", "To (s)"), reset);
  };
  build();
  const panel = h("details", { class: "filters", open: true }, h("summary", {}, "Filters"), fields);
  panel.hidden = data.runs.every((run) => run.requests === null);
  return panel;
}
