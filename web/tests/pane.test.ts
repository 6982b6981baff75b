import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Entry, FilePage } from '../src/api/types';
import { stubBrowser } from './browser';

stubBrowser();
const { api, ApiError } = await import('../src/api/client');
const { Pane } = await import('../src/state/pane');
const { places } = await import('../src/state/places');

function entry(name: string, kind: Entry['kind'] = 'file'): Entry {
  return { name, addressable: true, kind, bytes: 1, mode: '0644', modified: null, target: null };
}

const page = (names: string[], next: string | null = null): FilePage => ({ entries: names.map((name) => entry(name)), next });
/** Runs everything that waits for answers. */
const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 0));

const files = vi.spyOn(api, 'files');

beforeEach(() => {
  files.mockReset();
  places.value = [{ name: 'home', root: '/home/ana/', builtin: true }];
});

describe('a pane', () => {
  test('reads a directory page by page', async () => {
    files.mockResolvedValueOnce(page(['a', 'b'], 'b')).mockResolvedValueOnce(page(['c']));
    const pane = new Pane('left');
    pane.open('home', ['runs']);
    await settle();
    expect(pane.names.value).toEqual(['a', 'b', 'c']);
    expect(pane.selection.value.cursor).toBe('a');
    expect(pane.loading.value).toBe(false);
    expect(files.mock.calls.map((call) => call.slice(0, 2))).toEqual([
      ['/home/ana/runs', null],
      ['/home/ana/runs', 'b'],
    ]);
  });

  test('asks for a long directory in few requests, and for little first', async () => {
    // Returns as many of a hundred thousand entries as are requested.
    files.mockImplementation((_at, after, limit) => {
      const from = after === null ? 0 : Number(after) + 1;
      const to = Math.min(from + limit, 100_000);
      const names = Array.from({ length: to - from }, (_, index) => String(from + index).padStart(6, '0'));
      return Promise.resolve(page(names, to < 100_000 ? String(to - 1) : null));
    });
    const pane = new Pane('left');
    pane.open('home', []);
    await vi.waitFor(() => { expect(pane.loading.value).toBe(false); });
    expect(pane.total.value).toBe(100_000);
    expect(files.mock.calls.map((call) => call[2])).toEqual([1000, 20_000, 20_000, 20_000, 20_000, 20_000]);
  });

  test('shows nothing of the directory before', async () => {
    files.mockResolvedValueOnce(page(['a']));
    const pane = new Pane('left');
    pane.open('home', []);
    await settle();
    let late: (value: FilePage) => void = () => undefined;
    files.mockReturnValueOnce(new Promise((resolve) => { late = resolve; })).mockResolvedValueOnce(page(['y']));
    pane.open('home', ['x']);
    expect(pane.subject()).toEqual([]);
    expect(pane.names.value).toEqual([]);
    pane.open('home', ['y']);
    await settle();
    late(page(['x']));
    await settle();
    expect(pane.names.value).toEqual(['y']);
  });

  test('tells what went wrong, and keeps what came', async () => {
    files.mockResolvedValueOnce(page(['a'], 'a')).mockRejectedValueOnce(new ApiError(502, 'x', 'gone\u202e'));
    const pane = new Pane('left');
    pane.open('home', []);
    await settle();
    expect(pane.names.value).toEqual(['a']);
    expect(pane.error.value).toBe('gone\\u{202e}');
  });

  test('does not ask for the same page for ever', async () => {
    files.mockResolvedValue(page(['a'], 'a'));
    const pane = new Pane('left');
    pane.open('home', []);
    await settle();
    expect(files).toHaveBeenCalledTimes(2);
  });

  test('goes up to where it came from', async () => {
    files.mockResolvedValueOnce({ entries: [entry('runs', 'directory'), entry('file')], next: null });
    const pane = new Pane('left');
    pane.open('home', []);
    await settle();
    pane.enter('file');
    expect(pane.path.value).toEqual([]);
    files.mockResolvedValue(page([]));
    pane.enter('runs');
    expect(pane.path.value).toEqual(['runs']);
    expect(pane.into()).toBe('/home/ana/runs/');
    pane.up();
    expect(pane.path.value).toEqual([]);
    expect(pane.selection.value.cursor).toBe('runs');
  });
});
