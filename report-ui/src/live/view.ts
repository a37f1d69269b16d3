/** Rates as a picture. */
import * as Plot from "@observablehq/plot";
import type { Context } from "../context";
import { frame, hatch, plot, ticks, type Panel } from "../picture";
import type { Made, ViewSpec } from "../section";
import * as text from "../text";
import type { Moment, Rates } from "./rates";

const ID = "rates";
/** Classes of the page's palette: the first is that of demand. */
const WAITS = 4;

export function ratesView(rates: () => Rates): ViewSpec {
  return {
    id: ID,
    title: "Rates",
    about: "What the medium was asked for each second, and how long reads waited for it.",
    options: {},
    has: () => true,
    make: (context, width) => make(context, width, rates()),
  };
}

function make(_context: Context, width: number, { classes, moments, knowsWaits }: Rates): Made | string {
  if (moments.length === 0) return "The first rates come in a second.";
  const domain: [number, number] = [moments[0]!.at - moments[0]!.seconds, moments[moments.length - 1]!.at];
  const category = (i: number): number => i;
  const say = (values: (moment: Moment) => number[], unit: (value: number) => string) => (x: number) => {
    const moment = moments.find((each) => x <= each.at) ?? moments[moments.length - 1]!;
    const parts = values(moment).map((value, i) => `${classes[i] ?? ""} ${unit(value)}`);
    return `${text.seconds(moment.at)}: ${parts.join(", ")}`;
  };
  const stacked = (values: (moment: Moment) => number[]): Plot.Markish[] =>
    classes.map((_, i) =>
      Plot.rect(
        moments.flatMap((moment) => {
          const all = values(moment);
          const y1 = all.slice(0, i).reduce((sum, value) => sum + value, 0);
          if (!(all[i]! > 0)) return [];
          return [{ x1: moment.at - moment.seconds, x2: moment.at, y1, y2: y1 + all[i]! }];
        }),
        { x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: hatch(ID, category(i)) },
      ),
    );
  const panel = (
    heading: string,
    marks: Plot.Markish[],
    least: number,
    describe: Panel["describe"],
  ): Panel => ({
    heading,
    time: false,
    describe,
    plot: plot({
      ...frame(width, 150),
      x: { domain, label: "seconds since the server began", ticks: ticks(width) },
      y: { label: null, ticks: 3, grid: true, nice: true, domain: [0, least] },
      marks: [Plot.frame({ strokeOpacity: 0.3 }), ...marks],
    }),
  });
  const most = (values: (moment: Moment) => number[], least: number): number =>
    Math.max(least, ...moments.map((moment) => values(moment).reduce((sum, value) => sum + value, 0)));
  const mib = (moment: Moment): number[] => moment.bytes.map((value) => value / (1 << 20));
  const waiting = (moment: Moment): number[] => [moment.waiting];
  const waits = Plot.rect(
    moments.filter((moment) => moment.waiting > 0),
    {
      x1: (moment: Moment) => moment.at - moment.seconds,
      x2: "at",
      y1: 0,
      y2: "waiting",
      fill: hatch(ID, WAITS),
    },
  );
  const panels = [
    panel(
      "MiB a second",
      stacked(mib),
      most(mib, 0.1),
      say(
        (moment) => moment.bytes,
        (value) => `${text.bytes(value)}/s`,
      ),
    ),
    panel(
      "requests a second",
      stacked((moment) => moment.requests),
      most((moment) => moment.requests, 5),
      say(
        (moment) => moment.requests,
        (value) => `${value.toFixed(1)}/s`,
      ),
    ),
    panel("reads that wait, on average", [waits], most(waiting, 1), (x) => {
      const moment = moments.find((each) => x <= each.at) ?? moments[moments.length - 1]!;
      return `${text.seconds(moment.at)}: ${moment.waiting.toFixed(2)}`;
    }),
  ];
  if (!knowsWaits) panels.pop();
  const legend = classes.map((name, i) => ({ text: name, category: category(i) }));
  if (knowsWaits) legend.push({ text: "reads that wait", category: WAITS });
  function* rows(): Generator<text.CellValue[]> {
    for (const { at, seconds, bytes, requests, waiting } of moments) {
      yield [at, seconds, ...bytes, ...requests, waiting];
    }
  }
  const columns = ["at_s", "seconds"];
  columns.push(
    ...classes.map((name) => `${name} bytes_per_s`),
    ...classes.map((name) => `${name} requests_per_s`),
  );
  columns.push("waiting_reads");
  return { panels, legend, below: [], table: () => ({ columns, rows: rows() }) };
}
