/** The page: the result, inputs and filters, and the views. */
import { Context } from "./context";
import { BLOCK_BYTES, isWaitedFor, KINDS, type Data, type Run } from "./data";
import { choice, h } from "./dom";
import { makeView, type View } from "./section";
import * as text from "./text";
import { themeChoice } from "./theme";
import { latency } from "./views/latency";
import { makeMap } from "./views/map";
import { makeResult } from "./views/result";
import { scatter } from "./views/scatter";
import { seek } from "./views/seek";
import { experiments, fairness, files, stageFiles, totals } from "./views/tables";
import { timeline } from "./views/timeline";

export function start(root: HTMLElement, data: Data): void {
  const context = new Context(data);
  const result = makeResult(context);
  const views: View[] = [
    result,
    makeMap(context),
    ...[totals, timeline, latency, files, stageFiles, seek, scatter, fairness, experiments].map((spec) =>
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
  const settings = h("div", { class: "settings" });
  /** Shows other inputs, and the views that have something of them. */
  const choose = (index: number): void => {
    context.choose(data.groups[index]!);
    settings.replaceChildren(
      groupChoice(data, index, choose),
      context.group.runs.length === 0 ? "" : inputList(context, drawAll, !result.has()),
      filters(context, filterChanged),
    );
    views.forEach((view, i) => (view.element.hidden = links[i]!.hidden = !view.has()));
    drawAll();
  };
  root.replaceChildren(
    h(
      "header",
      {},
      h("h1", {}, "headstart report"),
      h("span", { class: "generator" }, data.generator),
      theme.element,
    ),
    h("nav", { "aria-label": "Views" }, ...links),
    h("main", {}, result.element, settings, ...views.slice(1).map((view) => view.element)),
  );
  choose(0);
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

/** The story whose inputs are shown, where there are several. */
function groupChoice(data: Data, chosen: number, choose: (index: number) => void): HTMLElement | string {
  if (data.groups.length === 1) return "";
  const choices = data.groups.map(({ title }, index) => [String(index), title] as const);
  return choice("Details of", choices, String(chosen), (value) => choose(Number(value)));
}

/** The inputs, a line each. */
function inputList(context: Context, changed: () => void, open: boolean): HTMLElement {
  const { runs } = context.group;
  const lines = runs.map((run) => {
    const box = h("input", { type: "checkbox", checked: !context.hidden.has(run) });
    box.addEventListener("change", () => {
      context.show(run, box.checked);
      changed();
    });
    const facts = factsOf(run).join(" · ");
    return h(
      "li",
      {},
      h("label", {}, box, h("strong", {}, context.nameOf(run))),
      h("span", { class: "facts-line", title: facts }, facts),
      ...run.notes.map((note) => h("div", { class: "note" }, note)),
    );
  });
  const list = h("ul", { class: "inputs", "aria-label": "Inputs" }, ...lines);
  return h("details", { class: "fold", open }, h("summary", {}, `Inputs (${runs.length})`), list);
}

/** What is known of an input: one count of requests, that of the medium where the start has one. */
function factsOf({ kind, ready, summary, requests, medium, disk, command }: Run): string[] {
  const facts: string[] = [];
  if (ready !== null) facts.push(`ready after ${text.fixed(ready)}`);
  const { store_requests: count, store_bytes: bytes } = summary ?? {};
  if (typeof count === "number" && typeof bytes === "number")
    facts.push(`${text.count(count)} requests to the medium, ${text.bytes(bytes)}`);
  else if (requests) {
    const waited = requests.kind.reduce(
      (sum, each, i) => sum + Number(isWaitedFor(each) && !requests.part[i]),
      0,
    );
    facts.push(`${text.count(waited)} requests that a program waits for`);
  }
  if (medium !== null) facts.push(medium);
  if (disk) facts.push(`disk of ${text.bytes(disk.blocks * BLOCK_BYTES)}`);
  return [kind, ...facts, ...(command === null ? [] : [command])];
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
  const panel = h("details", { class: "fold filters" }, h("summary", {}, "Filters"), fields);
  panel.hidden = context.group.runs.every((run) => run.requests === null);
  return panel;
}
