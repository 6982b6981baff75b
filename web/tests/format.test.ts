import { describe, expect, test } from 'vitest';
import { formatDuration, formatMoment, formatRate, formatSize, secondsLeft } from '../src/model/format';

describe('figures', () => {
  test('sizes', () => {
    expect(formatSize(0, 'en')).toBe('0 B');
    expect(formatSize(1023, 'en')).toBe('1,023 B');
    expect(formatSize(1024, 'en')).toBe('1.0 KiB');
    expect(formatSize(1536 * 1024 ** 2, 'en')).toBe('1.5 GiB');
    expect(formatSize(1536 * 1024 ** 2, 'de')).toBe('1,5 GiB');
    expect(formatSize(120 * 1024 ** 4, 'en')).toBe('120 TiB');
    expect(formatSize(1024 ** 2 - 1, 'en')).toBe('1.0 MiB');
    expect(formatSize(2 ** 80, 'en')).toMatch(/EiB$/);
    expect(formatSize(-1, 'en')).toBe('0 B');
  });

  test('rates', () => {
    expect(formatRate(0, 'en')).toBe('0 bit/s');
    expect(formatRate(942.3e6, 'en')).toBe('942 Mbit/s');
    expect(formatRate(9.42e9, 'en')).toBe('9.4 Gbit/s');
    expect(formatRate(NaN, 'en')).toBe('0 bit/s');
  });

  test('durations', () => {
    expect(formatDuration(0)).toBe('0 s');
    expect(formatDuration(59.7)).toBe('1 min 00 s');
    expect(formatDuration(245)).toBe('4 min 05 s');
    expect(formatDuration(3 * 3600 + 7 * 60)).toBe('3 h 07 min');
    expect(formatDuration(49 * 3600)).toBe('2 d 1 h');
  });

  test('moments', () => {
    expect(formatMoment('2026-01-31T18:00:00Z', 'en')).toMatch(/2026/);
    expect(formatMoment('nonsense', 'en')).toBe('');
    expect(formatMoment(null, 'en')).toBe('');
  });

  test('time left is told only where all was found', () => {
    expect(secondsLeft({ bytes: 0, bytes_found: 1000, walk_complete: true, bps: 800 })).toBe(10);
    expect(secondsLeft({ bytes: 0, bytes_found: 1000, walk_complete: false, bps: 800 })).toBeNull();
    expect(secondsLeft({ bytes: 0, bytes_found: 1000, walk_complete: true, bps: 0 })).toBeNull();
    expect(secondsLeft({})).toBeNull();
  });
});
