/** Which requests the views show. */
import type { RequestTable } from "./data";

export interface Filter {
  /** Of each kind, whether it is shown. */
  kinds: boolean[];
  /** Only this process. */
  process: number | null;
  from: number;
  to: number;
}

/** The numbers of the requests that pass, in order of arrival. */
export function select(requests: RequestTable, filter: Filter): Uint32Array {
  const { at, kind, process } = requests;
  const chosen = new Uint32Array(requests.count);
  let length = 0;
  for (let i = 0; i < requests.count; i++) {
    if (!filter.kinds[kind[i]!]) continue;
    if (filter.process !== null && process[i] !== filter.process) continue;
    if (at[i]! < filter.from || at[i]! > filter.to) continue;
    chosen[length++] = i;
  }
  return chosen.subarray(0, length);
}
