// Made from crates/hs-report/src/model.rs by its test, which compares.

/**
 * Everything that the page shows.
 */
export type Report = { 
/**
 * [`VERSION`].
 */
version: number, 
/**
 * The program that wrote it, with its version.
 */
generator: string, 
/**
 * Disks that inputs are of. Inputs of the same disk share one.
 */
disks: Array<Disk>, 
/**
 * Starts and other recordings, in the order of the command line.
 */
inputs: Array<Input>, 
/**
 * What the starts among the inputs, or those of a demo, say together.
 */
stories: Array<Story>, 
/**
 * Experiments of the laboratory.
 */
experiments: Array<Experiment>, };

/**
 * Starts of one thing from several places: the result with which the page opens.
 */
export type Story = { 
/**
 * What starts, as the beginning of a sentence that ends with a time.
 */
title: string, 
/**
 * What exactly, from what, how often, and on which machine.
 */
about: string, 
/**
 * The starts, in the order in which they are shown.
 */
bars: Array<Bar>, 
/**
 * The number of the start that is compared with the other.
 */
after: number, 
/**
 * And of that other one.
 */
before: number, 
/**
 * The time of the first by the limit.
 */
to_limit: number | null, };

/**
 * A start of a story.
 */
export type Bar = { 
/**
 * What serves it.
 */
label: string, 
/**
 * When it was ready; of several runs the median.
 */
seconds: number, 
/**
 * What no start from there can be quicker than.
 */
limit_s: number | null, 
/**
 * Whether headstart serves it.
 */
is_ours: boolean, 
/**
 * The number of its input, where there is one.
 */
input: number | null, };

/**
 * A disk, with what an image among the inputs, or a profile, says of it.
 */
export type Disk = { 
/**
 * The image's file name; the first input's where there is no image.
 */
name: string, 
/**
 * Its blocks, of 4096 bytes each.
 */
blocks: number, 
/**
 * Blocks of a cold chunk (a window); `null` without an image.
 */
window_blocks: number | null, 
/**
 * The hot region; `null` without an image.
 */
hot: HotRegion | null, 
/**
 * Runs of blocks that are stored nowhere, because they are zero; `null` without an image.
 */
zero: Runs | null, 
/**
 * Files on it; `null` where none are known.
 */
files: Files | null, };

/**
 * Runs of blocks, in parallel columns.
 */
export type Runs = { 
/**
 * `u32`: the first block.
 */
first: Column, 
/**
 * `u32`: how many blocks.
 */
count: Column, };

/**
 * The hot region, in the order in which it is stored.
 */
export type HotRegion = { 
/**
 * Its runs, in the order of the file.
 */
runs: Runs, 
/**
 * `u32`: the hot chunk that has the run.
 */
chunk: Column, 
/**
 * `f32`, one for each chunk: when the recorded start needed it, without its waits; zeros where that is
 * not known.
 */
needed_s: Column, };

/**
 * Files of a disk and where they lie.
 */
export type Files = { 
/**
 * The paths.
 */
paths: Texts, 
/**
 * Their runs, by first block. Runs do not overlap.
 */
runs: Runs, 
/**
 * `u32`, one for each run: the number of the path.
 */
path: Column, };

/**
 * What an input is.
 */
export type InputKind = "profile" | "summary" | "trace" | "image";

/**
 * One input.
 */
export type Input = { 
/**
 * Its file name; not unique.
 */
name: string, 
/**
 * What it is.
 */
kind: InputKind, 
/**
 * The command that was started.
 */
command: string | null, 
/**
 * The medium.
 */
medium: string | null, 
/**
 * Its number in `disks`; `null` for a summary.
 */
disk: number | null, 
/**
 * When the start was ready.
 */
ready_s: number | null, 
/**
 * When the recording or the run ended.
 */
ended_s: number | null, 
/**
 * Its requests; `null` for a summary and an image.
 */
requests: Requests | null, 
/**
 * Parts of the time, in order, where the input says them.
 */
stages: Array<Stage>, 
/**
 * What each stage read of each file; `null` where requests have no stages.
 */
stage_files: StageFiles | null, 
/**
 * Processes that ran meanwhile, where the input says them.
 */
lives: Array<Life>, 
/**
 * The time that they had a processor, all together, where the input says that.
 */
cpu: Array<CpuUse>, 
/**
 * Figures of a run summary, by their keys; `null` without.
 */
summary: Record<string, number | string | boolean | null> | null, 
/**
 * What a reader should know: what was left out, and why.
 */
notes: Array<string>, };

/**
 * A part of the time of a start.
 */
export type Stage = { 
/**
 * What happened in it.
 */
name: string, 
/**
 * When it began.
 */
from_s: number, 
/**
 * When it ended.
 */
to_s: number, };

/**
 * What each stage of a start read of each file, in the order of their first requests, in parallel columns.
 */
export type StageFiles = { 
/**
 * The stages; empty where a request has none.
 */
stages: Texts, 
/**
 * The paths; empty for what lies in no file.
 */
files: Texts, 
/**
 * `f64`: when the first request came.
 */
first_s: Column, 
/**
 * `f64`: when the last one came.
 */
last_s: Column, 
/**
 * `f64`: how many there were.
 */
requests: Column, 
/**
 * `f64`: their bytes.
 */
bytes: Column, 
/**
 * `f64`: blocks, each once.
 */
unique_blocks: Column, 
/**
 * `f64`: the time in which at least one of them was served.
 */
busy_s: Column, };

/**
 * A process that ran meanwhile.
 */
export type Life = { 
/**
 * The process.
 */
process: Process, 
/**
 * The number of its parent, where that is known.
 */
parent: number | null, 
/**
 * When it was first seen.
 */
from_s: number, 
/**
 * When it was last seen.
 */
to_s: number, 
/**
 * How long it had a processor; `null` when that is not known.
 */
cpu_s: number | null, };

/**
 * The use of processors in a part of the time.
 */
export type CpuUse = { 
/**
 * When the part began.
 */
from_s: number, 
/**
 * When it ended.
 */
to_s: number, 
/**
 * The time that processes had a processor in it: more than its length on several.
 */
cpu_s: number, };

/**
 * Requests by their arrival, in parallel columns.
 */
export type Requests = { 
/**
 * `f64`: when it arrived. Ascending.
 */
at_s: Column, 
/**
 * `u32`: the first block.
 */
block: Column, 
/**
 * `u32`: how many blocks, at least one.
 */
blocks: Column, 
/**
 * `f32`: how long it waited in a queue.
 */
wait_s: Column, 
/**
 * `f32`: how long it was served after that.
 */
service_s: Column, 
/**
 * `u8`: its number in `kinds`.
 */
kind: Column, 
/**
 * What requests are of.
 */
kinds: Array<RequestKind>, 
/**
 * `u8`: 1 for a further part of a request that is there already, with the same times; else 0.
 */
part: Column, 
/**
 * `u32`: its number in `processes`.
 */
process: Column, 
/**
 * Processes, clients or threads that made them; one without a name where that is not known.
 */
processes: Array<Process>, };

/**
 * What a request is of.
 */
export type RequestKind = "demand" | "prefetch" | "background" | "write" | "warm";

/**
 * Who makes requests.
 */
export type Process = { 
/**
 * Its name.
 */
name: string, 
/**
 * Its number, where it has one.
 */
pid: number | null, };

/**
 * An experiment, with each of its figures.
 */
export type Experiment = { 
/**
 * The name.
 */
name: string, 
/**
 * What is set, in words.
 */
parameters: string, 
/**
 * How much of the engine takes part, in words.
 */
engine: string, 
/**
 * Its figures.
 */
figures: Array<Figure>, };

/**
 * A figure of an experiment beside what was published.
 */
export type Figure = { 
/**
 * What it is.
 */
name: string, 
/**
 * Ours.
 */
value: number, 
/**
 * Ours with the mechanism switched off.
 */
off: number | null, 
/**
 * What was published, in words.
 */
published: string | null, 
/**
 * Where.
 */
source: string | null, 
/**
 * Ours by the published one.
 */
ratio: number | null, 
/**
 * The verdict's name in the laboratory.
 */
kind: string | null, 
/**
 * Whether it agrees with what was published, and reaches its goal.
 */
verdict: FigureVerdict, 
/**
 * The goal, in words.
 */
target: string | null, 
/**
 * Why it is missed, or what was chosen.
 */
note: string | null, };

/**
 * Whether a figure agrees.
 */
export type FigureVerdict = "pass" | "miss" | "note";

/**
 * The type of a column's numbers.
 */
export type Number = "u8" | "u32" | "f32" | "f64";

/**
 * Numbers.
 */
export type Column = { 
/**
 * What each is.
 */
type: Number, 
/**
 * How many.
 */
count: number, 
/**
 * Their bytes, little-endian, as zlib and base64.
 */
data: string, };

/**
 * Texts.
 */
export type Texts = { 
/**
 * How many.
 */
count: number, 
/**
 * A JSON array of strings, as zlib and base64.
 */
data: string, };
