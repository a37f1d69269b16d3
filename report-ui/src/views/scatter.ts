/** How long a request took, over how far it lay from the one before it. */
import type { Scale } from "../bins";
import type { Context } from "../context";
import { BLOCK_BYTES, type Run } from "../data";
import type { ViewSpec } from "../section";
import { duration, type Part } from "../stats";
import * as text from "../text";
import { categories, COLOUR_BY } from "./categories";
import { pointsPanel } from "./points";
import { requestTable } from "./seek";

/** Shorter times are drawn as this. */
const SHORTEST = 1e-6;

export const PART = {
  label: "Time",
  choices: [
    ["total", "wait and service"],
    ["service", "service"],
    ["wait", "wait in the queue"],
  ],
} as const;

export const scatter: ViewSpec = {
  id: "steps",
  title: "Step against service time",
  about:
    "How long each request took, over its step: from the end of the request before it to its first block. " +
    "A disk with heads draws a V; a medium without them a line.",
  options: { colour: COLOUR_BY, part: { label: PART.label, choices: [PART.choices[1], PART.choices[0]] } },
  has: (context) => context.hasRequests,
  make: (context, width, options) => {
    const runs = context.withRequests.filter((run) => context.chosenOf(run).length > 0);
    if (runs.length === 0) return "No input has requests that pass the filter.";
    const part = options.part as Part;
    const by = categories(context, options.colour!);
    const steps = runs.map((run) => stepsOf(context, run));
    const farthest = steps.reduce((top, each) => each.reduce((a, b) => Math.max(a, Math.abs(b)), top), 1);
    const x: Scale = { type: "symlog", domain: [-farthest, farthest], linear: BLOCK_BYTES };
    const y: Scale = { type: "log", domain: timeDomain(runs, (run) => context.chosenOf(run), part) };
    const panels = runs.map((run, index) =>
      pointsPanel({
        heading: context.nameOf(run),
        width,
        height: 280,
        theme: context.theme,
        time: false,
        x,
        y,
        xAxis: { label: "step", ticks: stepTicks(farthest, width), tickFormat: stepText },
        yAxis: {
          label: null,
          ticks: timeTicks(y.domain),
          tickFormat: (value: number) => text.seconds(value),
        },
        chosen: context.wholeOf(run),
        xOf: (i) => steps[index]![i]!,
        yOf: (i) => Math.max(SHORTEST, duration(run.requests!, i, part)),
        category: (i) => by.of(run.requests!, i),
        marks: [],
        names: (category) => by.legend.find((item) => item.category === category)?.text ?? "",
        place: (step, time) => `step ${stepText(step)}${Number.isNaN(time) ? "" : `, ${text.seconds(time)}`}`,
      }),
    );
    return { panels, legend: by.legend, below: [], table: () => requestTable(context, runs) };
  },
};

/** The step of each chosen request in bytes, in a list for all requests. */
function stepsOf(context: Context, run: Run): Float64Array {
  const { block, blocks, count } = run.requests!;
  const steps = new Float64Array(count);
  let end = 0;
  for (const i of context.chosenOf(run)) {
    steps[i] = (block[i]! - end) * BLOCK_BYTES;
    end = block[i]! + blocks[i]!;
  }
  return steps;
}

/** From the shortest to the longest time, in whole powers of ten. */
export function timeDomain(runs: Run[], chosenOf: (run: Run) => Uint32Array, part: Part): [number, number] {
  let low = Infinity;
  let high = SHORTEST;
  for (const run of runs) {
    for (const i of chosenOf(run)) {
      const time = Math.max(SHORTEST, duration(run.requests!, i, part));
      low = Math.min(low, time);
      high = Math.max(high, time);
    }
  }
  const power = (value: number): number => Math.log10(value);
  const first = 10 ** Math.floor(power(Math.min(low, high)) + 1e-9);
  return [first, Math.max(first * 10, 10 ** Math.ceil(power(high) - 1e-9))];
}

/** Powers of ten, of which as many as a width has room for; all when there is no width. */
export function timeTicks(domain: [number, number], width = Infinity): number[] {
  const first = Math.round(Math.log10(domain[0]));
  const last = Math.round(Math.log10(domain[1]));
  const step = Math.ceil(((last - first) * 60) / (width - 92));
  return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i)).filter(
    (_, i) => i % Math.max(1, step) === 0,
  );
}

function stepTicks(farthest: number, width: number): number[] {
  const all = [2 ** 16, 2 ** 20, 2 ** 24, 2 ** 30, 2 ** 34, 2 ** 40].filter((size) => size <= farthest);
  const sizes = width < 600 ? all.filter((_, i) => i % 2 === 1) : all;
  return [...sizes.map((size) => -size).reverse(), 0, ...sizes];
}

function stepText(step: number): string {
  if (Math.abs(step) < 1) return "0";
  return `${step > 0 ? "+" : "−"}${text.bytes(Math.abs(step)).replace(/\.0+ /, " ")}`;
}
