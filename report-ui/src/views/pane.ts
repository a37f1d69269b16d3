/** One map of the image, with its cursor. */
import { zoomIdentity, type ZoomTransform } from "d3-zoom";
import { STATES, STATE_TEXT, type Blocks } from "../blocks";
import type { Context } from "../context";
import { fileOf, findRun, KINDS, type Run } from "../data";
import { h } from "../dom";
import { cellAt, fit, type View } from "../layout";
import { Painter } from "../painter";
import * as text from "../text";

/** The line of the playback joins this many requests. */
const TRAIL = 30;

export class MapPane {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly title: string;
  readonly ratio = Math.min(2, window.devicePixelRatio || 1);
  readonly fitScale: number;
  onScale: (factor: number) => void = () => undefined;
  onCentre: (x: number, y: number) => void = () => undefined;
  private readonly overlay: HTMLCanvasElement;
  private readonly readout: HTMLElement;
  private readonly painter: Painter;
  private readonly blocks: Blocks;
  private readonly whole: View;
  private zoom: ZoomTransform = zoomIdentity;
  private cursor = -1;
  private pending = false;

  constructor(
    private readonly context: Context,
    readonly run: Run,
    readonly columns: number,
    width: number,
    height: number,
  ) {
    this.blocks = context.blocksOf(run);
    this.title = context.nameOf(run);
    this.canvas = h("canvas", {
      tabindex: 0,
      class: "cells",
      role: "img",
      "aria-label": `Image map of ${this.title}`,
    });
    this.overlay = h("canvas", { class: "overlay", "aria-hidden": "true" });
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.painter = new Painter(this.canvas, this.blocks.cells, columns);
    const [w, hh] = [Math.round(width * this.ratio), Math.round(height * this.ratio)];
    this.painter.resize(w, hh);
    this.painter.setTheme(context.theme);
    [this.overlay.width, this.overlay.height] = [w, hh];
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.whole = fit(this.blocks.cells, columns, w, hh);
    this.fitScale = this.whole.scale / this.ratio;
    this.painter.view = this.whole;
    const ready = run.ready === null ? "" : `ready after ${text.fixed(run.ready)} · `;
    const size = `${ready}${text.count(run.disk!.blocks)} blocks, ${text.count(columns * this.blocks.blocksPerCell)} a row`;
    const name = h("h3", { title: this.title }, this.title, h("small", {}, ` ${size}`));
    const stack = h("div", { class: "stack" }, this.canvas, this.overlay);
    this.element = h("div", { class: "pane" }, name, stack, this.readout);
    this.blocks.goTo(context.time, () => undefined);
    this.painter.paint(this.blocks.states);
    this.listen();
  }

  get isZoomed(): boolean {
    return this.zoom.k > 1;
  }

  count(state: number): number {
    return this.blocks.counts[state]! * this.blocks.blocksPerCell;
  }

  setZoom(zoom: ZoomTransform): void {
    this.zoom = zoom;
    const { scale, x, y } = this.whole;
    this.painter.view = {
      scale: scale * zoom.k,
      x: x * zoom.k + zoom.x * this.ratio,
      y: y * zoom.k + zoom.y * this.ratio,
    };
    this.canvas.style.touchAction = zoom.k > 1 ? "none" : "pan-y";
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.painter.paint(this.blocks.states);
      this.show();
    });
  }

  setTime(time: number): void {
    const anew = this.blocks.goTo(time, (cell, state) => this.painter.change(cell, state));
    if (anew) this.painter.paint(this.blocks.states);
    this.show();
  }

  /** Shows states that came from elsewhere: all of them, or those of some cells. */
  apply(
    states: Uint8Array | null,
    changes: Iterable<readonly [first: number, count: number, state: number]>,
  ): void {
    if (states) this.blocks.replace(states);
    for (const [first, count, state] of changes) {
      this.blocks.raise(first, count, state, (cell, to) => states ?? this.painter.change(cell, to));
    }
    if (states) this.painter.paint(this.blocks.states);
    this.show();
  }

  /** Where the cursor is, in CSS pixels; the middle without one. */
  cursorPoint(): [number, number] {
    if (this.cursor < 0) return [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    const [x, y] = this.centre(this.cursor);
    return [x / this.ratio, y / this.ratio];
  }

  private centre(cell: number): [number, number] {
    const { scale, x, y } = this.painter.view;
    const column = cell % this.columns;
    return [x + (column + 0.5) * scale, y + (Math.floor(cell / this.columns) + 0.5) * scale];
  }

  private show(): void {
    this.painter.flush();
    const drawing = this.overlay.getContext("2d")!;
    const { width, height } = this.overlay;
    drawing.clearRect(0, 0, width, height);
    const { position, chosen } = this.blocks;
    if (position > 0 && this.context.time < this.context.span) {
      drawing.strokeStyle = getComputedStyle(this.canvas).color;
      drawing.lineWidth = this.ratio;
      for (let p = Math.max(1, position - TRAIL); p < position; p++) {
        drawing.globalAlpha = 1 - (position - p) / (TRAIL + 1);
        drawing.beginPath();
        drawing.moveTo(...this.centre(this.blocks.cellsOf(chosen[p - 1]!)[0]));
        drawing.lineTo(...this.centre(this.blocks.cellsOf(chosen[p]!)[0]));
        drawing.stroke();
      }
      drawing.globalAlpha = 1;
      drawing.beginPath();
      drawing.arc(...this.centre(this.blocks.cellsOf(chosen[position - 1]!)[0]), 5 * this.ratio, 0, 7);
      drawing.stroke();
    }
    if (this.cursor >= 0) {
      const size = Math.max(7 * this.ratio, this.painter.view.scale + 2);
      const [x, y] = this.centre(this.cursor);
      for (const [ink, line] of [
        ["#fff", 4],
        ["#000", 2],
      ] as const) {
        drawing.strokeStyle = ink;
        drawing.lineWidth = line * this.ratio;
        drawing.strokeRect(x - size / 2, y - size / 2, size, size);
      }
    }
  }

  private listen(): void {
    this.canvas.addEventListener("pointermove", (event) => {
      const { columns, painter, blocks, ratio } = this;
      const cell = cellAt(painter.view, blocks.cells, columns, event.offsetX * ratio, event.offsetY * ratio);
      if (cell >= 0 && event.buttons === 0) this.point(cell);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const last = this.blocks.cells - 1;
      const from = Math.max(0, this.cursor);
      const moves: Record<string, number> = {
        ArrowLeft: from - 1,
        ArrowRight: from + 1,
        ArrowUp: from - this.columns,
        ArrowDown: from + this.columns,
        PageUp: from - 10 * this.columns,
        PageDown: from + 10 * this.columns,
        Home: 0,
        End: last,
      };
      const to = moves[event.key];
      const factor = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, "0": 0 }[event.key];
      if (event.ctrlKey || event.metaKey || (to === undefined && factor === undefined)) return;
      event.preventDefault();
      if (factor !== undefined) this.onScale(factor);
      if (to === undefined) return;
      this.point(Math.max(0, Math.min(last, to)));
      const [x, y] = this.cursorPoint();
      const isInside = x > 0 && y > 0 && x < this.canvas.clientWidth && y < this.canvas.clientHeight;
      if (!isInside) this.onCentre(...this.zoom.invert([x, y]));
    });
  }

  private point(cell: number): void {
    if (cell === this.cursor) return;
    this.cursor = cell;
    this.readout.textContent = this.describe(cell);
    this.show();
  }

  /** Block, chunk, state, times and file, in words. */
  private describe(cell: number): string {
    const block = cell * this.blocks.blocksPerCell;
    const disk = this.run.disk!;
    const parts = [`Block ${text.count(block)}`, STATE_TEXT[STATES[this.blocks.states[cell]!]!]];
    if (disk.hot) {
      const { runs, chunk, needed } = disk.hot;
      for (let run = 0; run < runs.first.length; run++) {
        if (block < runs.first[run]! || block >= runs.first[run]! + runs.count[run]!) continue;
        const when = needed[chunk[run]!] ?? 0;
        parts.push(
          `hot chunk ${text.count(chunk[run]!)}${when > 0 ? `, needed at ${text.seconds(when)}` : ""}`,
        );
        break;
      }
    }
    if (disk.windowBlocks) parts.push(`cold window ${text.count(Math.floor(block / disk.windowBlocks))}`);
    if (disk.zero && findRun(disk.zero, block) >= 0) parts.push("zero");
    const requests = this.run.requests;
    for (const i of this.blocks.touching(block, 3)) {
      const took = requests!.wait[i]! + requests!.service[i]!;
      const process = this.context.data.processes[requests!.process[i]!]!;
      const kind = KINDS[requests!.kind[i]!]!;
      parts.push(`${kind} at ${text.seconds(requests!.at[i]!)}, took ${text.seconds(took)}, ${process}`);
    }
    const file = fileOf(disk, block);
    if (file !== null) parts.push(file);
    return parts.join(" · ");
  }
}
