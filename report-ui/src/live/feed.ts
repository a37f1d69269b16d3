// Made from crates/hs-daemon/src/live_page/feed.rs by its test, which compares.

/**
 * How a server is now. Counters grow from its start; the page makes rates of them.
 */
export type Feed = { 
/**
 * [`VERSION`].
 */
version: number, 
/**
 * The program, with its version.
 */
generator: string, 
/**
 * Names the server's process: another one has another map and counts from zero.
 */
server: string, 
/**
 * Seconds since this server began.
 */
at_s: number, 
/**
 * Names of all images.
 */
images: Array<string>, 
/**
 * The number of the image that the rest is about.
 */
image: number, 
/**
 * Where it is found.
 */
at: string, 
/**
 * The medium.
 */
medium: string, 
/**
 * Whether blocks are those of the image's file, and not of the disk in it.
 */
is_file: boolean, 
/**
 * The map.
 */
map: MapFeed, 
/**
 * What was asked for, by its classes.
 */
classes: Array<Class>, 
/**
 * Reads of clients and of the kernel.
 */
waits: Waits, 
/**
 * The prefetch; `null` without.
 */
prefetch: Prefetch | null, 
/**
 * Clients over HTTP; `null` where there is no such server.
 */
clients: Clients | null, };

/**
 * What has changed in the map.
 */
export type MapFeed = { 
/**
 * Its blocks, of 4096 bytes each.
 */
blocks: number, 
/**
 * Blocks that share a cell: a power of two.
 */
blocks_per_cell: number, 
/**
 * What to ask for next.
 */
next: number, 
/**
 * The state of each cell, a byte each, as zlib and base64; `null` where the changes say enough.
 */
states: string | null, 
/**
 * Of each change, its first cell.
 */
first: Array<number>, 
/**
 * How many cells it has.
 */
count: Array<number>, 
/**
 * The new state: its number in the page's list of states.
 */
state: Array<number>, };

/**
 * Requests of one class.
 */
export type Class = { 
/**
 * Its name.
 */
name: string, 
/**
 * How many.
 */
requests: number, 
/**
 * Bytes that they asked for.
 */
bytes: number, };

/**
 * Reads and their waits.
 */
export type Waits = { 
/**
 * Reads.
 */
reads: number, 
/**
 * Of these, reads that waited for the medium.
 */
waited: number, 
/**
 * How long they waited, all together.
 */
wait_s: number, 
/**
 * Reads that wait now.
 */
now: number, 
/**
 * How long the one has waited that waits longest.
 */
longest_s: number, };

/**
 * How far the prefetch is.
 */
export type Prefetch = { 
/**
 * Where its blocks go.
 */
mode: string, 
/**
 * Uncompressed bytes that have come.
 */
bytes: number, 
/**
 * Uncompressed bytes there are.
 */
bytes_total: number, 
/**
 * Why it ended; `null` while it goes on.
 */
ended: string | null, };

/**
 * Clients over HTTP.
 */
export type Clients = { 
/**
 * Clients that are being answered now.
 */
now: number, 
/**
 * Connections so far.
 */
connections: number, };
