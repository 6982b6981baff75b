// Entries of a directory, sorted and filtered for display. They arrive page by page.

import type { Entry } from '../api/types';
import { isEntryName } from './location';

/**
 * Maximum number of entries kept, because browsers limit the height of a list, and memory is
 * finite.
 */
export const MAX_ENTRIES = 500_000;

export type SortKey = 'name' | 'size' | 'modified';

export interface Sort {
  key: SortKey;
  descending: boolean;
}

export interface Row {
  entry: Entry;
  /** Name in lower case, cached because sorting compares it many times. */
  folded: string;
  /** Modification time in milliseconds, or -1. */
  modified: number;
}

export interface View {
  sort: Sort;
  /** Substring of the names to show, case-insensitive. */
  filter: string;
  /** If true, names that begin with a dot are shown. */
  hidden: boolean;
}

function rowOf(entry: Entry): Row {
  const modified = entry.modified === null ? NaN : Date.parse(entry.modified);
  return { entry, folded: entry.name.toLowerCase(), modified: Number.isNaN(modified) ? -1 : modified };
}

type Compare = (a: Row, b: Row) => number;

function byName(a: Row, b: Row): number {
  if (a.folded !== b.folded) return a.folded < b.folded ? -1 : 1;
  if (a.entry.name === b.entry.name) return 0;
  return a.entry.name < b.entry.name ? -1 : 1;
}

/** Returns a comparison: directories first in either order, then by the key, then by name. */
export function comparison(sort: Sort): Compare {
  const sign = sort.descending ? -1 : 1;
  return (a, b) => {
    const directories = Number(b.entry.kind === 'directory') - Number(a.entry.kind === 'directory');
    if (directories !== 0) return directories;
    if (sort.key === 'size' && a.entry.kind !== 'directory') {
      const difference = a.entry.bytes - b.entry.bytes;
      if (difference !== 0) return sign * difference;
    }
    if (sort.key === 'modified') {
      const difference = a.modified - b.modified;
      if (difference !== 0) return sign * difference;
    }
    return (sort.key === 'name' ? sign : 1) * byName(a, b);
  };
}

/** Merges two sorted lists. */
export function merge(a: readonly Row[], b: readonly Row[], compare: Compare): Row[] {
  const merged: Row[] = [];
  let i = 0;
  let j = 0;
  for (;;) {
    const left = a[i];
    const right = b[j];
    if (left === undefined) break;
    if (right === undefined) break;
    if (compare(left, right) <= 0) {
      merged.push(left);
      i += 1;
    } else {
      merged.push(right);
      j += 1;
    }
  }
  for (; i < a.length; i += 1) merged.push(a[i] as Row);
  for (; j < b.length; j += 1) merged.push(b[j] as Row);
  return merged;
}

/** State of a listing. `rows` is a new array after every visible change. */
export class Listing {
  rows: readonly Row[] = [];
  /** Number of entries received, shown or not. */
  total = 0;
  /** If true, entries were left out because there are too many. */
  cut = false;
  #all: Row[] = [];
  #view: View;

  constructor(view: View) {
    this.#view = view;
  }

  get view(): View {
    return this.#view;
  }

  /** Appends a page of entries. Invalid names are dropped. */
  append(entries: readonly Entry[]): void {
    const room = MAX_ENTRIES - this.#all.length;
    const fresh = entries.filter((entry) => isEntryName(entry.name)).map(rowOf);
    if (fresh.length > room) {
      this.cut = true;
      fresh.length = room;
    }
    for (const row of fresh) this.#all.push(row);
    this.total = this.#all.length;
    const compare = comparison(this.#view.sort);
    const shown = this.#shown(fresh).sort(compare);
    if (shown.length === 0) return;
    // Merging a page costs one pass; sorting everything again would be too slow for a hundred
    // pages.
    this.rows = merge(this.rows, shown, compare);
  }

  /** Changes sort order and filter. */
  show(view: View): void {
    this.#view = view;
    this.rows = this.#shown(this.#all).sort(comparison(view.sort));
  }

  #shown(rows: readonly Row[]): Row[] {
    const filter = this.#view.filter.toLowerCase();
    return rows.filter(
      (row) => (this.#view.hidden || !row.entry.name.startsWith('.')) && (filter === '' || row.folded.includes(filter)),
    );
  }
}
