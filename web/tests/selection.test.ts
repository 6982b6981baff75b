import { describe, expect, test } from 'vitest';
import { NOTHING, click, moveBy, moveTo, selectAll, subject, toggle, type Selection } from '../src/model/selection';

const names = ['a', 'b', 'c', 'd', 'e'];
const plain = { range: false, keep: false };
const shift = { range: true, keep: false };
const ctrl = { range: false, keep: true };
const chosen = (selection: Selection): string => [...selection.names].sort().join('');

describe('a selection', () => {
  test('by clicks', () => {
    let now = click(NOTHING, names, 'b', plain);
    expect(chosen(now)).toBe('b');
    now = click(now, names, 'd', shift);
    expect(chosen(now)).toBe('bcd');
    now = click(now, names, 'a', shift);
    expect(chosen(now)).toBe('ab');
    now = click(now, names, 'e', ctrl);
    expect(chosen(now)).toBe('abe');
    now = click(now, names, 'a', ctrl);
    expect(chosen(now)).toBe('be');
    now = click(now, names, 'c', { range: true, keep: true });
    expect(chosen(now)).toBe('abce');
    now = click(now, names, 'c', plain);
    expect(chosen(now)).toBe('c');
  });

  test('by keys', () => {
    let now = moveBy(NOTHING, names, 1, plain);
    expect(now.cursor).toBe('a');
    now = moveBy(now, names, 1, plain);
    expect(chosen(now)).toBe('b');
    now = moveBy(now, names, 2, shift);
    expect(chosen(now)).toBe('bcd');
    now = moveBy(now, names, -1, shift);
    expect(chosen(now)).toBe('bc');
    now = moveBy(now, names, 1, ctrl);
    expect([chosen(now), now.cursor]).toEqual(['bc', 'd']);
    now = moveBy(now, names, 1, ctrl);
    now = toggle(now);
    expect(chosen(now)).toBe('bce');
    expect(chosen(toggle(now))).toBe('bc');
    expect(moveBy(now, names, 100, plain).cursor).toBe('e');
    expect(moveTo(now, names, 0, shift).names.size).toBe(5);
    expect(moveTo(now, [], 3, plain)).toBe(now);
  });

  test('is by name, so other rows may come in between', () => {
    const now = click(NOTHING, names, 'b', plain);
    expect(moveBy(now, ['a', 'aa', 'b', 'bb', 'c'], 1, plain).cursor).toBe('bb');
  });

  test('what an action is about', () => {
    expect(subject(NOTHING, names)).toEqual([]);
    expect(subject({ ...NOTHING, cursor: 'c' }, names)).toEqual(['c']);
    expect(subject({ names: new Set(['d', 'b', 'gone']), cursor: 'a', anchor: null }, names)).toEqual(['b', 'd']);
    // Actions do not apply to rows that a filter hides.
    expect(subject({ names: new Set(['b']), cursor: 'b', anchor: 'b' }, ['a'])).toEqual([]);
    expect(selectAll(NOTHING, names)).toEqual({ names: new Set(names), cursor: 'a', anchor: null });
  });
});
