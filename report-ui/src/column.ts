/** Columns: typed arrays, deflated (zlib), in base64. */
import type { Column, Texts } from "./model";

const TYPES = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array } as const;

export type Numbers = Uint8Array | Uint32Array | Float32Array | Float64Array;

/** No list of texts is longer than this many bytes. */
const MOST_TEXT = 1 << 29;

/** Decodes a column; fails when it is not exactly as long as it says. */
export async function decodeColumn<T extends keyof typeof TYPES>(
  column: Column,
  type: T,
): Promise<InstanceType<(typeof TYPES)[T]>> {
  if (column.type !== type) throw new Error(`a column is of ${column.type} and not of ${type}`);
  const array = TYPES[type];
  const bytes = new Uint8Array(column.count * array.BYTES_PER_ELEMENT);
  let length = 0;
  await inflate(column.data, bytes.length, (part) => {
    bytes.set(part, length);
    length += part.length;
  });
  if (length !== bytes.length) throw new Error(`a column is shorter than its ${column.count} values`);
  return new array(bytes.buffer) as InstanceType<(typeof TYPES)[T]>;
}

/** Decodes a list of texts. */
export async function decodeTexts(texts: Texts): Promise<string[]> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  await inflate(texts.data, MOST_TEXT, (part) => parts.push(part));
  const list: unknown = JSON.parse(await new Blob(parts).text());
  if (!Array.isArray(list) || list.length !== texts.count) throw new Error("a list of texts is damaged");
  return list.map(String);
}

async function inflate(
  base64: string,
  most: number,
  take: (part: Uint8Array<ArrayBuffer>) => void,
): Promise<void> {
  const stream = new Blob([fromBase64(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const reader = stream.getReader();
  let length = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    length += part.value.length;
    if (length > most) {
      void reader.cancel();
      throw new Error("a column is longer than it says");
    }
    take(part.value);
  }
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const modern = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (modern.fromBase64) return modern.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
