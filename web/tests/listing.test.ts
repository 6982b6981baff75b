import { describe, expect, test } from 'vitest';
import type { Entry, EntryKind } from '../src/api/types';
import { Listing, type Sort, type View } from '../src/model/listing';

function entry(name: string, kind: EntryKind = 'file', bytes = 0, modified: string | null = null): Entry {
  return { name, addressable: true, kind, bytes, mode: '0644', modified, target: null };
}

function view(sort: Partial<Sort> = {}, rest: Partial<View> = {}): View {
  return { sort: { key: 'name', descending: false, ...sort }, filter: '', hidden: false, ...rest };
}

const names = (listing: Listing): string[] => listing.rows.map((row) => row.entry.name);

describe('a listing', () => {
  test('has directories first, and names whatever their case', () => {
    const listing = new Listing(view());
    listing.append([entry('b'), entry('C'), entry('a'), entry('z', 'directory')]);
    expect(names(listing)).toEqual(['z', 'a', 'b', 'C']);
    listing.show(view({ descending: true }));
    expect(names(listing)).toEqual(['z', 'C', 'b', 'a']);
  });

  test('sorts by size and by time', () => {
    const listing = new Listing(view({ key: 'size' }));
    listing.append([entry('a', 'file', 3), entry('b', 'file', 1), entry('c', 'file', 3)]);
    expect(names(listing)).toEqual(['b', 'a', 'c']);
    listing.show(view({ key: 'size', descending: true }));
    expect(names(listing)).toEqual(['a', 'c', 'b']);
    const times = new Listing(view({ key: 'modified', descending: true }));
    times.append([entry('a', 'file', 0, '2020-01-01T00:00:00Z'), entry('b', 'file', 0, null), entry('c', 'file', 0, '2026-01-01T00:00:00Z')]);
    expect(names(times)).toEqual(['c', 'a', 'b']);
  });

  test('is the same whether it came in one page or in many', () => {
    const entries = Array.from({ length: 997 }, (_, index) =>
      entry(`n${String((index * 577) % 997)}`, index % 10 === 0 ? 'directory' : 'file', index % 7),
    );
    const whole = new Listing(view({ key: 'size' }));
    whole.append(entries);
    const paged = new Listing(view({ key: 'size' }));
    for (let from = 0; from < entries.length; from += 100) paged.append(entries.slice(from, from + 100));
    expect(names(paged)).toEqual(names(whole));
  });

  test('filters, and hides names that begin with a dot', () => {
    const listing = new Listing(view());
    listing.append([entry('.git', 'directory'), entry('Run-1'), entry('other')]);
    expect(names(listing)).toEqual(['other', 'Run-1']);
    expect(listing.total).toBe(3);
    listing.show(view({}, { filter: 'RUN' }));
    expect(names(listing)).toEqual(['Run-1']);
    listing.append([entry('rerun'), entry('x')]);
    expect(names(listing)).toEqual(['rerun', 'Run-1']);
    listing.show(view({}, { hidden: true }));
    expect(names(listing)).toEqual(['.git', 'other', 'rerun', 'Run-1', 'x']);
  });

  test('drops names that lead elsewhere', () => {
    const listing = new Listing(view({}, { hidden: true }));
    listing.append([entry('..', 'directory'), entry('a/../../b'), entry('')]);
    expect(names(listing)).toEqual([]);
  });

  test('a new array only when something new is shown', () => {
    const listing = new Listing(view());
    const before = listing.rows;
    listing.append([entry('.hidden')]);
    expect(listing.rows).toBe(before);
  });
});
