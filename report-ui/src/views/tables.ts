/** Views that are tables: totals, files, fairness, experiments. */
import type { Context } from "../context";
import { union } from "../bins";
import { BLOCK_BYTES, DEMAND, findRun, KINDS, type Run } from "../data";
import { h, table } from "../dom";
import type { Made, ViewSpec } from "../section";
import { answered, jain, shares, waitedSeconds } from "../stats";
import * as text from "../text";

type Value = number | string | boolean | null;

/** A ratio to the first input. */
function ratio(value: Value | undefined, base: Value | undefined): number | null {
  return typeof value === "number" && typeof base === "number" && base !== 0 ? value / base : null;
}

function made(below: Node[], columns: string[], rows: text.CellValue[][]): Made {
  return { panels: [], legend: [], below, table: () => ({ columns, rows }) };
}

export const totals: ViewSpec = {
  id: "totals",
  title: "Figures",
  about:
    "Figures of each input, without those that are zero everywhere. Ratios in brackets are to the first input.",
  options: {},
  has: ({ group }) => group.runs.some((run) => run.summary ?? run.requests),
  make: (context) => {
    const runs = context.runs.filter((run) => run.summary ?? run.requests);
    const figures = runs.map((run) => figuresOf(context, run));
    const keys = [...new Set(figures.flatMap((each) => [...each.keys()]))];
    const filled = keys.filter((key) => figures.some((each) => each.get(key)));
    if (filled.length === 0) return "The inputs have no figures.";
    const names = runs.map((run) => context.nameOf(run));
    const rows = filled.map((key) => [
      text.label(key),
      ...figures.map((each, i) => {
        const value = each.get(key) ?? null;
        const words = typeof value === "boolean" ? (value ? "yes" : "no") : value;
        const shown = text.measure(key, typeof words === "string" ? text.shorten(words, 28) : words);
        return text.withRatio(shown, i === 0 ? null : ratio(value, figures[0]!.get(key)));
      }),
    ]);
    const data = filled.map((key) => [key, ...figures.map((each) => plain(each.get(key) ?? null))]);
    return made([table("Figures", ["Figure", ...names], rows)], ["figure", ...names], data);
  },
};

function plain(value: Value): text.CellValue {
  return typeof value === "boolean" ? String(value) : value;
}

/** The first rows, where they are known. */
const FIRST = ["ready_s", "limit_s", "demand_wait_s", "store_requests", "seeks", "store_bytes"];

/** Figures of the run summary, or else of the requests; and what became of the blocks. */
function figuresOf(context: Context, run: Run): Map<string, Value> {
  const found = new Map<string, Value>();
  const { requests, summary } = run;
  if (summary) {
    const keys = new Set([...FIRST.filter((key) => key in summary), ...Object.keys(summary)]);
    for (const key of keys) found.set(key, summary[key] ?? null);
    found.delete("medium");
  } else if (requests) {
    found.set("ready_s", run.ready);
    found.set("demand_wait_s", waitedSeconds(requests, context.chosenOf(run)));
    found.set("waited_requests", context.waitedOf(run).length);
    const kinds = shares(requests, context.chosenOf(run), requests.kind);
    kinds.forEach(({ bytes }, kind) => found.set(`${KINDS[kind]!}_bytes`, bytes));
  }
  if (!requests || !run.disk) return found;
  const blocks = context.blocksOf(run).finalCounts();
  found.set("page_cache_took_blocks", blocks.cached);
  for (const state of ["used", "late", "unused"] as const) found.set(`${state}_blocks`, blocks[state]);
  found.set("read_on_demand_blocks", blocks.read);
  return found;
}

interface FileTotal {
  reads: number;
  /** Each moment once. */
  wait: number;
}

export const files: ViewSpec = {
  id: "files",
  title: "Files that were waited for",
  about: "Demand reads by the file of their first block: how long they lasted, each moment of a file once.",
  options: {
    most: {
      label: "Show",
      choices: [
        ["20", "20 files"],
        ["100", "100 files"],
      ],
    },
  },
  has: ({ group }) => group.runs.some((run) => run.requests && run.disk?.files),
  make: (context, _width, options) => {
    const runs = context.withRequests.filter((run) => run.disk?.files);
    if (runs.length === 0)
      return "No input knows the files of its disk. Add the image, or record the profile from a mount.";
    const found = runs.map((run) => filesOf(context, run));
    const paths = [...new Set(found.flatMap((each) => [...each.keys()]))];
    const sum = (path: string): number =>
      found.reduce((total, each) => total + (each.get(path)?.wait ?? 0), 0);
    const order = paths.map((path) => [path, sum(path)] as const).sort((a, b) => b[1] - a[1]);
    const longest = order[0]?.[1] ?? 1;
    const rows = order.slice(0, Number(options.most)).map(([path, all]) => [
      h("span", { class: "path", title: path }, path),
      meter(all / longest),
      ...found.flatMap((each, i) => {
        const own = each.get(path);
        const times = i === 0 ? null : ratio(own?.wait, found[0]!.get(path)?.wait);
        return [text.withRatio(text.seconds(own?.wait ?? 0), times), text.count(own?.reads ?? 0)];
      }),
    ]);
    const names = runs.flatMap((run) => [`${context.nameOf(run)}: time`, "reads"]);
    const columns = [
      "path",
      ...runs.flatMap((run) => [`${context.nameOf(run)} wait_s`, `${context.nameOf(run)} reads`]),
    ];
    const data = order.map(([path]) => [
      path,
      ...found.flatMap((each) => [each.get(path)?.wait ?? 0, each.get(path)?.reads ?? 0]),
    ]);
    return made([table("Files", ["Path", "Share", ...names], rows)], columns, data);
  },
};

function filesOf(context: Context, run: Run): Map<string, FileTotal> {
  const found = new Map<string, FileTotal>();
  const requests = run.requests!;
  const { paths, runs, path } = run.disk!.files!;
  const spans = new Map<number, [number[], number[]]>();
  for (const i of context.chosenOf(run)) {
    if (requests.kind[i] !== DEMAND) continue;
    const at = findRun(runs, requests.block[i]!);
    const key = at < 0 ? -1 : path[at]!;
    let own = spans.get(key);
    if (!own) spans.set(key, (own = [[], []]));
    own[0].push(requests.at[i]!);
    own[1].push(answered(requests, i));
  }
  for (const [key, [starts, ends]] of spans) {
    const open = union(Float64Array.from(starts), Float64Array.from(ends));
    const wait = open.reduce((sum, [from, to]) => sum + to - from, 0);
    found.set(paths[key] ?? "(metadata, or no known file)", { reads: starts.length, wait });
  }
  return found;
}

export const stageFiles: ViewSpec = {
  id: "stages",
  title: "Files by stage",
  about:
    "What each stage of a boot read of which file, in the order in which that began; of the whole start, " +
    "whatever is filtered. The rate is of the time in which the medium served these requests.",
  options: {
    most: {
      label: "Show",
      choices: [
        ["50", "50 rows"],
        ["500", "500 rows"],
      ],
    },
  },
  has: ({ group }) => group.runs.some((run) => run.stageFiles.length > 0),
  make: (context, _width, options) => {
    const runs = context.runs.filter((run) => run.stageFiles.length > 0);
    if (runs.length === 0)
      return "No input has requests with stages: the trace of `headstart boot` has them.";
    const data: text.CellValue[][] = [];
    const below = runs.map((run) => {
      const name = context.nameOf(run);
      for (const { stage, file, first, last, requests, bytes, uniqueBlocks, busy } of run.stageFiles)
        data.push([name, stage, file, first, last, requests, bytes, uniqueBlocks, busy]);
      const rows = run.stageFiles.slice(0, Number(options.most)).map((of) => {
        const file = of.file === "" ? "(in no file)" : of.file;
        return [
          of.stage === "" ? "–" : of.stage,
          h("span", { class: "path", title: file }, file),
          text.seconds(of.first),
          text.seconds(of.last),
          text.count(of.requests),
          text.bytes(of.bytes),
          text.bytes(of.uniqueBlocks * BLOCK_BYTES),
          of.busy > 0 ? `${text.bytes(of.bytes / of.busy)}/s` : "–",
        ];
      });
      return table(name, ["Stage", "Path", "From", "To", "Requests", "Bytes", "Once", "Rate"], rows, 2);
    });
    const columns = ["input", "stage", "file", "first_s", "last_s", "requests", "bytes"];
    return made(below, [...columns, "unique_blocks", "busy_s"], data);
  },
};

function meter(share: number): HTMLElement {
  const bar = h("span", { class: "bar" });
  bar.style.width = `${Math.max(1, Math.round(share * 100))}%`;
  return h("span", { class: "meter" }, bar);
}

export const fairness: ViewSpec = {
  id: "fairness",
  title: "Fairness",
  about:
    "Jain's index by client or process: 1 when all got the same, 1/n when one of n got all. " +
    "Of bytes, and of the mean time of a request.",
  options: {},
  has: ({ group }) =>
    group.runs.some(({ requests }) => requests?.process.some((each) => each !== requests.process[0])),
  make: (context) => {
    const below: Node[] = [];
    const data: text.CellValue[][] = [];
    for (const run of context.withRequests) {
      const found = [...shares(run.requests!, context.chosenOf(run), run.requests!.process)];
      if (found.length < 2) continue;
      found.sort((a, b) => b[1].bytes - a[1].bytes);
      const bytes = jain(found.map(([, share]) => share.bytes));
      const times = jain(found.map(([, share]) => share.seconds / share.requests));
      const rows = found
        .slice(0, 50)
        .map(([process, share]) => [
          context.data.processes[process]!,
          meter(share.bytes / found[0]![1].bytes),
          text.count(share.requests),
          text.bytes(share.bytes),
          text.seconds(share.seconds / share.requests),
        ]);
      const caption = `${context.nameOf(run)}: index ${bytes.toFixed(3)} of bytes, ${times.toFixed(3)} of mean times`;
      below.push(table(caption, ["Client or process", "Share", "Requests", "Bytes", "Mean time"], rows));
      for (const [process, share] of found) {
        const mean = share.seconds / share.requests;
        data.push([
          context.nameOf(run),
          context.data.processes[process]!,
          share.requests,
          share.bytes,
          mean,
          bytes,
          times,
        ]);
      }
    }
    if (below.length === 0) return "No input has requests of more than one client or process.";
    return made(
      below,
      ["input", "process", "requests", "bytes", "mean_s", "jain_bytes", "jain_mean_time"],
      data,
    );
  },
};

const VERDICTS = { pass: "✓ pass", miss: "✗ miss", note: "• note" } as const;

export const experiments: ViewSpec = {
  id: "experiments",
  title: "Experiments",
  about: "Published figures against ours. A tick marks what agrees or reaches its goal.",
  options: {
    verdict: {
      label: "Show",
      choices: [
        ["all", "all"],
        ["pass", "✓ pass"],
        ["miss", "✗ miss"],
        ["note", "• note"],
      ],
    },
  },
  has: ({ data }) => data.experiments.length > 0,
  make: (context, _width, options) => {
    const { experiments: all } = context.data;
    if (all.length === 0) return "No input has results of the laboratory.";
    const data: text.CellValue[][] = [];
    const below = all.flatMap((experiment) => {
      const rows = experiment.figures
        .filter((figure) => options.verdict === "all" || figure.verdict === options.verdict)
        .map((figure) => {
          const { name, published, value, ratio: times, off, verdict, target, note, source } = figure;
          data.push([experiment.name, name, published, value, times, off, verdict, target, source, note]);
          return [
            name,
            [published, source && `(${source})`].filter(Boolean).join(" ") || "–",
            [target && `goal: ${target}`, note].filter(Boolean).join(". ") || "–",
            h("span", { class: `verdict ${verdict}` }, VERDICTS[verdict]),
            figureText(value),
            times === null ? "–" : text.times(times) || "–",
            off === null ? "–" : figureText(off),
          ];
        });
      if (rows.length === 0) return [];
      const caption = [experiment.name, experiment.parameters, experiment.engine].filter(Boolean).join(" · ");
      return [
        table(
          caption,
          ["Figure", "Published", "Goal and note", "Verdict", "Ours", "Ours / published", "Switched off"],
          rows,
          4,
        ),
      ];
    });
    const columns = [
      "experiment",
      "figure",
      "published",
      "ours",
      "ratio",
      "off",
      "verdict",
      "target",
      "source",
      "note",
    ];
    return made(
      below.length > 0 ? below : [h("p", { class: "empty" }, "No figure has this verdict.")],
      columns,
      data,
    );
  },
};

function figureText(value: number): string {
  return Number.isInteger(value) ? text.count(value) : String(Number(value.toPrecision(4)));
}
