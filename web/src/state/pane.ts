// One of the two panes: a directory in a place, its entries, and the selection.

import { computed, signal } from '@preact/signals';
import { api } from '../api/client';
import type { FilePage } from '../api/types';
import { Listing, MAX_ENTRIES, type Row, type Sort, type SortKey, type View } from '../model/listing';
import { locate, locateInto } from '../model/location';
import { NOTHING, subject, type Selection } from '../model/selection';
import { errorText } from './messages';
import { placeNamed } from './places';
import { keep, kept } from './settings';

/** Size of the first page of entries, small so that it arrives soon. */
const FIRST_PAGE = 1000;
/** Size of further pages, large so that long directories take few requests and merges. */
const FURTHER_PAGE = 20_000;

export type Side = 'left' | 'right';

function keptPane(side: Side): { place: string | null; path: string[]; hidden: boolean } {
  const value = kept(`pane.${side}`);
  const fields = typeof value === 'object' && value !== null ? value : {};
  return {
    place: 'place' in fields && typeof fields.place === 'string' ? fields.place : null,
    path:
      'path' in fields && Array.isArray(fields.path)
        ? fields.path.filter((name): name is string => typeof name === 'string')
        : [],
    hidden: 'hidden' in fields && fields.hidden === true,
  };
}

export class Pane {
  readonly place = signal<string | null>(null);
  readonly path = signal<readonly string[]>([]);
  readonly rows = signal<readonly Row[]>([]);
  readonly total = signal(0);
  readonly cut = signal(false);
  readonly loading = signal(false);
  readonly error = signal<string | null>(null);
  readonly view = signal<View>({ sort: { key: 'name', descending: false }, filter: '', hidden: false });
  readonly selection = signal<Selection>(NOTHING);
  readonly names = computed(() => this.rows.value.map((row) => row.entry.name));

  #listing = new Listing(this.view.value);
  #request: AbortController | null = null;

  constructor(readonly side: Side) {
    const { place, path, hidden } = keptPane(side);
    this.place.value = place;
    this.path.value = path;
    this.view.value = { ...this.view.value, hidden };
  }

  get root(): string | null {
    return placeNamed(this.place.value)?.root ?? null;
  }

  /** Returns the location of an entry, or of the directory itself. */
  location(name?: string): string {
    return locate(this.root ?? '', name === undefined ? this.path.value : [...this.path.value, name]);
  }

  /** Returns the destination of a copy into the directory, or into one in it. */
  into(directory?: string): string | null {
    if (this.root === null) return null;
    return locateInto(this.root, directory === undefined ? this.path.value : [...this.path.value, directory]);
  }

  /** Returns the names that an action applies to. */
  subject(): string[] {
    return subject(this.selection.value, this.names.value);
  }

  row(name: string): Row | undefined {
    return this.rows.value.find((row) => row.entry.name === name);
  }

  open(place: string | null, path: readonly string[], cursor: string | null = null): void {
    this.place.value = place;
    this.path.value = path;
    this.view.value = { ...this.view.value, filter: '' };
    this.selection.value = { ...NOTHING, cursor };
    // Immediate, so that no action applies names of the previous directory to this one.
    this.#publish(new Listing(this.view.value));
    this.#keep();
    void this.reload();
  }

  enter(name: string): void {
    const kind = this.row(name)?.entry.kind;
    // Only the far end knows the target of a link. It refuses to list one that is no directory.
    if (kind !== 'directory' && kind !== 'symlink') return;
    this.open(this.place.value, [...this.path.value, name]);
  }

  up(): void {
    const path = this.path.value;
    if (path.length > 0) this.open(this.place.value, path.slice(0, -1), path[path.length - 1] ?? null);
  }

  /** Loads the directory again, page by page, and abandons a load in progress. */
  async reload(): Promise<void> {
    // The old entries stay until as many new ones have arrived, so that the list does not jump.
    const shown = this.total.value;
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    this.error.value = null;
    const listing = new Listing(this.view.value);
    this.#listing = listing;
    if (this.root === null) {
      this.#publish(listing);
      this.loading.value = false;
      return;
    }
    this.loading.value = true;
    const at = this.location();
    try {
      let after: string | null = null;
      let asked: Promise<FilePage> | null = api.files(at, after, FIRST_PAGE, request.signal);
      while (asked !== null) {
        const page: FilePage = await asked;
        if (request.signal.aborted) return;
        // A server that returned the same position again would cause an endless loop.
        after = page.next === after || listing.total + page.entries.length > MAX_ENTRIES ? null : page.next;
        // Requested now, so that the next page arrives while this one is sorted.
        asked = after === null ? null : api.files(at, after, FURTHER_PAGE, request.signal);
        listing.append(page.entries);
        if (after === null || listing.total >= shown) this.#publish(listing);
      }
    } catch (error) {
      if (request.signal.aborted) return;
      this.#publish(listing);
      this.error.value = errorText(error);
    }
    this.loading.value = false;
  }

  sortBy(key: SortKey): void {
    const { sort } = this.view.value;
    const next: Sort = { key, descending: sort.key === key && !sort.descending };
    this.#show({ ...this.view.value, sort: next });
  }

  filterBy(filter: string): void {
    this.#show({ ...this.view.value, filter });
  }

  showHidden(hidden: boolean): void {
    this.#show({ ...this.view.value, hidden });
    this.#keep();
  }

  #show(view: View): void {
    this.view.value = view;
    this.#listing.show(view);
    this.#publish(this.#listing);
  }

  #publish(listing: Listing): void {
    this.rows.value = listing.rows;
    this.total.value = listing.total;
    this.cut.value = listing.cut;
    const { cursor } = this.selection.value;
    const first = listing.rows[0];
    if (cursor === null && first) this.selection.value = { ...this.selection.value, cursor: first.entry.name };
  }

  #keep(): void {
    keep(`pane.${this.side}`, {
      place: this.place.value,
      path: this.path.value,
      hidden: this.view.value.hidden,
    });
  }
}

export const panes: Record<Side, Pane> = { left: new Pane('left'), right: new Pane('right') };
/** Pane that keys were last used in; on narrow screens the visible one. */
export const side = signal<Side>('left');

export function other(of: Side): Side {
  return of === 'left' ? 'right' : 'left';
}
