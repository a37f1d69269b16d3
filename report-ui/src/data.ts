/** The decoded report: what the views draw from. Times are seconds since the start of a run. */
import { decodeColumn, decodeTexts } from "./column";
import type * as model from "./model";

export const VERSION = 4;
export const BLOCK_BYTES = 4096;

export type Kind = model.RequestKind;
export const KINDS: readonly Kind[] = ["demand", "prefetch", "background", "write", "warm"];
export const DEMAND = 0;
export const WRITE = 3;
/** Fills a page cache with what is to come; no program waits for it. */
export const WARM = 4;

/** Kinds that a program waits for. */
export function isWaitedFor(kind: number): boolean {
  return kind === DEMAND || kind === WRITE;
}

/** Kinds that bring blocks before a program asks for them. */
export function isAhead(kind: number): boolean {
  return kind === 1 || kind === 2;
}

/** Requests in order of arrival, one array a property. `kind` indexes `KINDS`, `process` the list of `Data`. */
export interface RequestTable {
  count: number;
  at: Float64Array;
  block: Uint32Array;
  blocks: Uint32Array;
  wait: Float32Array;
  service: Float32Array;
  kind: Uint8Array;
  process: Uint32Array;
  /** 1 for a further part of a request that is there already, with the same times. */
  part: Uint8Array;
}

/** Consecutive blocks. */
export interface Runs {
  first: Uint32Array;
  count: Uint32Array;
}

export interface Disk {
  name: string;
  blocks: number;
  windowBlocks: number | null;
  hot: { runs: Runs; chunk: Uint32Array; needed: Float32Array } | null;
  zero: Runs | null;
  /** Runs are in order and do not overlap. */
  files: { paths: string[]; runs: Runs; path: Uint32Array } | null;
}

/** A process that ran. */
export interface Life {
  process: string;
  pid: number | null;
  parent: number | null;
  from: number;
  to: number;
  cpu: number | null;
}

/** What a stage of a start read of a file. Each is empty where it is not known. */
export interface StageFile {
  stage: string;
  file: string;
  first: number;
  last: number;
  requests: number;
  bytes: number;
  uniqueBlocks: number;
  busy: number;
}

/** One input. */
export interface Run {
  name: string;
  kind: model.InputKind;
  command: string | null;
  medium: string | null;
  disk: Disk | null;
  ready: number | null;
  ended: number | null;
  /** When the last request was answered, or the run ended. */
  span: number;
  requests: RequestTable | null;
  stages: model.Stage[];
  /** In the order of the first request of each; empty where requests have no stages. */
  stageFiles: StageFile[];
  lives: Life[];
  cpu: model.CpuUse[];
  summary: NonNullable<model.Input["summary"]> | null;
  notes: string[];
}

/** Whether it says what happened when. */
export function hasTimes(run: Run): boolean {
  return run.requests !== null || run.stages.length + run.lives.length + run.cpu.length > 0;
}

/** Inputs that are shown together, on one time axis. */
export interface Group {
  title: string;
  /** Those of a story in its order; what is compared comes first. */
  runs: Run[];
}

export interface Data {
  generator: string;
  runs: Run[];
  stories: model.Story[];
  groups: Group[];
  /** Names of processes; one name for a process in all runs. */
  processes: string[];
  experiments: model.Experiment[];
}

/** Decodes what the program wrote. Fails with a message for the reader. */
export async function decodeReport(report: model.Report): Promise<Data> {
  if (report.version !== VERSION) {
    throw new Error(
      `this page reads version ${VERSION} of the data, and the data has version ${String(report.version)}`,
    );
  }
  const processes: string[] = [];
  const disks = await Promise.all(report.disks.map(decodeDisk));
  const runs: Run[] = [];
  for (const input of report.inputs) runs.push(await decodeInput(input, disks, processes));
  const { generator, stories, experiments } = report;
  return { generator, runs, stories, groups: groupsOf(stories, runs), processes, experiments };
}

/** The inputs of each story and of the same disks, then the others. One story has them all. */
export function groupsOf(stories: readonly model.Story[], runs: readonly Run[]): Group[] {
  const left = new Set(runs);
  const group = (title: string, first: readonly Run[], belongs: (run: Run) => boolean): Group => {
    const own = [...first, ...[...left].filter((run) => !first.includes(run) && belongs(run))];
    for (const run of own) left.delete(run);
    return { title, runs: own };
  };
  const told = stories
    .map(({ title, bars }) => ({ title, own: bars.flatMap(({ input }) => runs[input ?? -1] ?? []) }))
    .filter(({ own }) => own.length > 0);
  const groups = told.map(({ title, own }) =>
    group(
      title,
      own,
      ({ disk }) => told.length === 1 || (disk !== null && own.some((run) => run.disk === disk)),
    ),
  );
  if (left.size > 0 || groups.length === 0) groups.push(group("Other inputs", [], () => true));
  return groups;
}

async function decodeRuns(runs: model.Runs): Promise<Runs> {
  const [first, count] = await Promise.all([
    decodeColumn(runs.first, "u32"),
    decodeColumn(runs.count, "u32"),
  ]);
  if (first.length !== count.length) throw new Error("columns of runs differ in length");
  return { first, count };
}

async function decodeDisk(disk: model.Disk): Promise<Disk> {
  const { hot, files } = disk;
  return {
    name: disk.name,
    blocks: disk.blocks,
    windowBlocks: disk.window_blocks,
    zero: disk.zero && (await decodeRuns(disk.zero)),
    hot: hot && {
      runs: await decodeRuns(hot.runs),
      chunk: await decodeColumn(hot.chunk, "u32"),
      needed: await decodeColumn(hot.needed_s, "f32"),
    },
    files: files && {
      paths: await decodeTexts(files.paths),
      runs: await decodeRuns(files.runs),
      path: await decodeColumn(files.path, "u32"),
    },
  };
}

async function decodeInput(input: model.Input, disks: Disk[], processes: string[]): Promise<Run> {
  const requests = input.requests && (await decodeRequests(input.requests, processes));
  let span = Math.max(input.ended_s ?? 0, input.ready_s ?? 0);
  for (const part of [...input.stages, ...input.lives, ...input.cpu]) span = Math.max(span, part.to_s);
  for (let i = 0; i < (requests?.count ?? 0); i++) {
    const { at, wait, service } = requests!;
    span = Math.max(span, at[i]! + wait[i]! + service[i]!);
  }
  return {
    name: input.name,
    kind: input.kind,
    command: input.command,
    medium: input.medium,
    disk: input.disk === null ? null : (disks[input.disk] ?? null),
    ready: input.ready_s,
    ended: input.ended_s,
    span,
    requests,
    stages: input.stages,
    stageFiles: input.stage_files ? await decodeStageFiles(input.stage_files) : [],
    lives: input.lives.map((life) => ({
      process: processName(life.process),
      pid: life.process.pid,
      parent: life.parent,
      from: life.from_s,
      to: life.to_s,
      cpu: life.cpu_s,
    })),
    cpu: input.cpu,
    summary: input.summary,
    notes: input.notes,
  };
}

async function decodeStageFiles(raw: model.StageFiles): Promise<StageFile[]> {
  const [stages, files] = await Promise.all([decodeTexts(raw.stages), decodeTexts(raw.files)]);
  const numbers = [raw.first_s, raw.last_s, raw.requests, raw.bytes, raw.unique_blocks, raw.busy_s];
  const columns = await Promise.all(numbers.map((column) => decodeColumn(column, "f64")));
  if ([files, ...columns].some((column) => column.length !== stages.length)) {
    throw new Error("columns of stages and files differ in length");
  }
  const [first, last, requests, bytes, uniqueBlocks, busy] = columns as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  return stages.map((stage, i) => ({
    stage,
    file: files[i]!,
    first: first[i]!,
    last: last[i]!,
    requests: requests[i]!,
    bytes: bytes[i]!,
    uniqueBlocks: uniqueBlocks[i]!,
    busy: busy[i]!,
  }));
}

function processName(process: model.Process): string {
  const name = process.name === "" ? "(not known)" : process.name;
  return process.pid === null ? name : `${name} (${process.pid})`;
}

async function decodeRequests(raw: model.Requests, processes: string[]): Promise<RequestTable> {
  const { count } = raw.at_s;
  const [at, block, blocks, wait, service, kind, process, part] = await Promise.all([
    decodeColumn(raw.at_s, "f64"),
    decodeColumn(raw.block, "u32"),
    decodeColumn(raw.blocks, "u32"),
    decodeColumn(raw.wait_s, "f32"),
    decodeColumn(raw.service_s, "f32"),
    decodeColumn(raw.kind, "u8"),
    decodeColumn(raw.process, "u32"),
    decodeColumn(raw.part, "u8"),
  ]);
  if ([block, blocks, wait, service, kind, process, part].some((column) => column.length !== count)) {
    throw new Error("columns of requests differ in length");
  }
  for (let i = 0; i < count; i++) {
    if (!(at[i]! >= (i === 0 ? 0 : at[i - 1]!)) || !(wait[i]! >= 0) || !(service[i]! >= 0)) {
      throw new Error(`request ${i} has no proper time`);
    }
  }
  const kinds = raw.kinds.map((name) => KINDS.indexOf(name));
  rename(kind, kinds);
  const known = new Map(processes.map((name, index) => [name, index]));
  const places = raw.processes.map((each) => {
    const name = processName(each);
    const place = known.get(name) ?? processes.push(name) - 1;
    known.set(name, place);
    return place;
  });
  rename(process, places);
  return { count, at, block, blocks, wait, service, kind, process, part };
}

/** Replaces indices of an input's list by those of a list for all inputs. */
function rename(values: Uint8Array | Uint32Array, places: number[]): void {
  for (let i = 0; i < values.length; i++) {
    const place = places[values[i]!];
    if (place === undefined || place < 0) throw new Error(`request ${i} has an unknown kind or process`);
    values[i] = place;
  }
}

/** Which run has a block; -1 if none. `runs` are in order and do not overlap. */
export function findRun(runs: Runs, block: number): number {
  let low = 0;
  let high = runs.first.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (runs.first[middle]! <= block) low = middle + 1;
    else high = middle;
  }
  const at = low - 1;
  return at >= 0 && block < runs.first[at]! + runs.count[at]! ? at : -1;
}

/** The path of the file that has a block. */
export function fileOf(disk: Disk, block: number): string | null {
  if (!disk.files) return null;
  const run = findRun(disk.files.runs, block);
  return run < 0 ? null : (disk.files.paths[disk.files.path[run]!] ?? null);
}
