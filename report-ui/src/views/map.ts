/** The image map: every block of the disk as a cell, and the start replayed over it. */
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomTransform } from "d3-zoom";
import { STATES, STATE_TEXT } from "../blocks";
import type { Context } from "../context";
import type { Run } from "../data";
import { choice, h } from "../dom";
import { saveCanvas, saveCsv } from "../export";
import { columnsFor } from "../layout";
import { sample } from "../painter";
import { shell, type View } from "../section";
import * as text from "../text";
import { MapPane } from "./pane";

const SPEEDS = [0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8];

export function makeMap(context: Context): View {
  const about =
    "Every block of the disk, by address. Ctrl and wheel, + and − zoom; drag and arrow keys move. " +
    "In playback a line joins the last requests.";
  const { element, tools } = shell("map", "Image map", about);
  const heading = element.querySelector("h2")!;
  const panesBox = h("div", { class: "panes" });
  const legend = h("ul", { class: "legend", "aria-label": "States of blocks" });
  const empty = h("p", { class: "empty" }, "No input has a disk with blocks.");
  let panes: MapPane[] = [];
  const picked: string[] = [];

  const isShown = (run: Run): boolean => (run.disk?.blocks ?? 0) > 0;
  const candidates = (): Run[] => context.runs.filter(isShown);
  const pickers = h("span", { class: "pickers" });
  tools.append(pickers);
  const png = h(
    "button",
    { type: "button", click: () => saveCanvas("headstart-map", whole(panes, context)) },
    "PNG",
  );
  const csv = h(
    "button",
    { type: "button", click: () => saveCsv("headstart-map", stateTable(panes, context)) },
    "CSV",
  );
  tools.append(png, csv);

  const player = makePlayer(context, () => panes.some((pane) => pane.run.requests));
  element.append(player.element, panesBox, legend);

  const draw = (): void => {
    const runs = candidates();
    const names = runs.map((run) => [String(context.data.runs.indexOf(run)), context.nameOf(run)] as const);
    const named = (id: string | undefined): string | undefined => names.find((each) => each[0] === id)?.[0];
    const left = named(picked[0]) ?? names[0]?.[0] ?? "";
    const right = picked[1] === "" ? "" : (named(picked[1]) ?? names[1]?.[0] ?? "");
    const pick = (side: number) => (value: string) => {
      picked[side] = value;
      draw();
    };
    pickers.replaceChildren(
      choice("Left", names, left, pick(0)),
      choice("Right", [["", "none"], ...names], right, pick(1)),
    );
    pickers.hidden = runs.length < 2;
    const chosen = [left, right].filter((id) => id !== "").map((id) => context.data.runs[Number(id)]!);
    heading.textContent = chosen.length > 1 ? "Before and after, block by block" : "Image map";
    const cells = Math.max(0, ...chosen.map((run) => context.blocksOf(run).cells));
    const isNarrow = element.clientWidth < 700;
    const width = Math.floor(
      isNarrow
        ? element.clientWidth
        : (element.clientWidth - 16 * (chosen.length - 1)) / Math.max(1, chosen.length),
    );
    const most = isNarrow ? 300 : 420;
    const columns = columnsFor(cells, width, most);
    // No higher than all rows are, where they take the whole width.
    const height = Math.round(Math.max(120, Math.min(most, (Math.ceil(cells / columns) * width) / columns)));
    panes = chosen.map((run) => new MapPane(context, run, columns, width, height));
    panesBox.replaceChildren(...(panes.length > 0 ? panes.map((pane) => pane.element) : [empty]));
    for (const button of [png, csv]) button.disabled = panes.length === 0;
    linkZoom(panes, width, height);
    const keys = STATES.map((state, index) => {
      const amount = h("span", { class: "amount" });
      return {
        index,
        amount,
        item: h("li", {}, sample(index, context.theme), h("span", {}, STATE_TEXT[state]), amount),
      };
    });
    legend.replaceChildren(...keys.map((key) => key.item));
    showCounts = () => {
      for (const { index, amount } of keys) {
        amount.textContent = panes.map((pane) => text.count(pane.count(index))).join(" | ");
      }
    };
    setTime();
    showCounts();
  };
  let showCounts = (): void => undefined;
  let lastCounts = 0;
  const setTime = (): void => {
    for (const pane of panes) pane.setTime(context.time);
    player.show();
    if (performance.now() - lastCounts > 150 || !player.isPlaying()) {
      lastCounts = performance.now();
      showCounts();
    }
  };
  const has = (): boolean => context.group.runs.some(isShown);
  return { element, id: "map", title: "Image map", has, draw, setTime };
}

/** All panes zoom together, since they share their axes. */
export function linkZoom(panes: MapPane[], width: number, height: number): void {
  const behaviours = panes.map((pane) => {
    const most = Math.max(2, 48 / Math.max(0.001, pane.fitScale));
    const behaviour = zoom<HTMLCanvasElement, unknown>()
      .scaleExtent([1, most])
      .translateExtent([
        [0, 0],
        [width, height],
      ])
      .extent([
        [0, 0],
        [width, height],
      ])
      .filter((event: Event) => {
        if (event instanceof WheelEvent) return event.ctrlKey || document.activeElement === pane.canvas;
        if (event.type.startsWith("touch")) return (event as TouchEvent).touches.length > 1 || pane.isZoomed;
        return !(event instanceof MouseEvent && event.button !== 0);
      });
    select(pane.canvas).call(behaviour);
    return behaviour;
  });
  let busy = false;
  panes.forEach((pane, index) => {
    behaviours[index]!.on("zoom", (event: { transform: ZoomTransform }) => {
      pane.setZoom(event.transform);
      if (busy) return;
      busy = true;
      panes.forEach((other, i) => {
        if (i !== index) behaviours[i]!.transform(select(other.canvas), event.transform);
      });
      busy = false;
    });
    pane.onScale = (factor) => {
      const selection = select(pane.canvas);
      if (factor === 0) behaviours[index]!.transform(selection, zoomIdentity);
      else behaviours[index]!.scaleBy(selection, factor, pane.cursorPoint());
    };
    pane.onCentre = (x, y) => behaviours[index]!.translateTo(select(pane.canvas), x, y);
  });
}

interface Player {
  element: HTMLElement;
  show: () => void;
  isPlaying: () => boolean;
}

function makePlayer(context: Context, isUseful: () => boolean): Player {
  let playing = false;
  let before = 0;
  let speed = 1;
  const slider = h("input", { type: "range", min: 0, max: 1000, step: 1, value: 1000, "aria-label": "Time" });
  const output = h("output", { class: "time" });
  const button = h("button", { type: "button", class: "play", click: () => setPlaying(!playing) }, "▶ Play");
  const setPlaying = (value: boolean): void => {
    playing = value;
    button.textContent = playing ? "❚❚ Pause" : "▶ Play";
    if (!playing) return;
    if (context.time >= context.span) context.setTime(0);
    before = performance.now();
    requestAnimationFrame(frame);
  };
  const frame = (now: number): void => {
    if (!playing) return;
    const time = context.time + (Math.max(0, now - before) / 1000) * speed;
    before = now;
    context.setTime(time);
    if (time >= context.span) setPlaying(false);
    else requestAnimationFrame(frame);
  };
  slider.addEventListener("input", () => context.setTime((Number(slider.value) / 1000) * context.span));
  const speeds = SPEEDS.map((value) => [String(value), `×${value}`] as const);
  const element = h(
    "div",
    { class: "player" },
    button,
    slider,
    output,
    choice("Speed", speeds, "1", (value) => (speed = Number(value))),
  );
  const show = (): void => {
    const { span } = context;
    slider.value = String(span > 0 ? (context.time / span) * 1000 : 1000);
    output.textContent = text.seconds(context.time);
    slider.setAttribute("aria-valuetext", output.textContent);
    element.hidden = !isUseful();
  };
  return { element, show, isPlaying: () => playing };
}

/** The panes side by side with their names and a legend, as one picture. */
export function whole(panes: MapPane[], context: Context): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const ratio = panes[0]!.ratio;
  const [width, height] = [panes[0]!.canvas.width, panes[0]!.canvas.height];
  canvas.width = (width + 16 * ratio) * panes.length;
  canvas.height = height + (28 + 22 * STATES.length) * ratio;
  const drawing = canvas.getContext("2d")!;
  const style = getComputedStyle(document.body);
  drawing.fillStyle = style.backgroundColor;
  drawing.fillRect(0, 0, canvas.width, canvas.height);
  drawing.fillStyle = style.color;
  drawing.font = `${13 * ratio}px system-ui, sans-serif`;
  panes.forEach((pane, index) => {
    const x = index * (width + 16 * ratio);
    drawing.fillText(pane.title, x + 4 * ratio, 18 * ratio, width);
    drawing.drawImage(pane.canvas, x, 26 * ratio);
  });
  STATES.forEach((state, index) => {
    const y = height + (30 + 22 * index) * ratio;
    drawing.drawImage(sample(index, context.theme), 4 * ratio, y, 24 * ratio, 14 * ratio);
    const counts = panes.map((pane) => text.count(pane.count(index))).join(" | ");
    drawing.fillText(`${STATE_TEXT[state]}: ${counts}`, 36 * ratio, y + 12 * ratio);
  });
  return canvas;
}

/** Runs of blocks of one state at the moment shown. */
export function stateTable(panes: MapPane[], context: Context): text.Table {
  function* rows(): Generator<text.CellValue[]> {
    for (const { run } of panes) {
      const { states, blocksPerCell } = context.blocksOf(run);
      for (let first = 0; first < states.length;) {
        let end = first + 1;
        while (end < states.length && states[end] === states[first]) end++;
        const count = (end - first) * blocksPerCell;
        yield [context.nameOf(run), first * blocksPerCell, count, STATES[states[first]!]!];
        first = end;
      }
    }
  }
  return { columns: ["input", "first_block", "blocks", "state"], rows: rows() };
}
