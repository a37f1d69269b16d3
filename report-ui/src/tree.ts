/** Processes as a tree. */
import type { Life } from "./data";

export interface Place {
  life: Life;
  /** How many of its ancestors are among the lives. */
  depth: number;
}

/** Each process behind its parent, siblings by their beginnings. */
export function treeOf(lives: readonly Life[]): Place[] {
  const order = [...lives].sort((a, b) => a.from - b.from);
  const parents = new Map<Life, Life>();
  for (const life of order) {
    if (life.parent === null) continue;
    // A number may have been used by several: the parent is the one that lived then.
    const parent = order.find(
      (each) => each !== life && each.pid === life.parent && each.from <= life.from && life.from <= each.to,
    );
    if (parent && !isAncestor(parents, life, parent)) parents.set(life, parent);
  }
  const found: Place[] = [];
  const add = (parent: Life | undefined, depth: number): void => {
    for (const life of order) {
      if (parents.get(life) !== parent) continue;
      found.push({ life, depth });
      add(life, depth + 1);
    }
  };
  add(undefined, 0);
  return found;
}

function isAncestor(parents: Map<Life, Life>, ancestor: Life, of: Life): boolean {
  for (let at: Life | undefined = of; at; at = parents.get(at)) if (at === ancestor) return true;
  return false;
}
