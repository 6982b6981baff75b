import { describe, expect, test } from 'vitest';
import type { Progress } from '../src/api/types';
import { readReport } from '../src/model/report';
import { parseRoute, routeFragment } from '../src/model/route';
import { RateSeries } from '../src/model/series';
import { ticketIn } from '../src/model/ticket';
import { rowsPerPage, scrollTo, windowOf } from '../src/model/virtual';

describe('rows in view', () => {
  test('with a margin, and never beyond the ends', () => {
    expect(windowOf(0, 280, 28, 100_000, 5)).toEqual({ start: 0, end: 15 });
    expect(windowOf(2800, 280, 28, 100_000, 5)).toEqual({ start: 95, end: 115 });
    expect(windowOf(28 * 99_995, 280, 28, 100_000, 5)).toEqual({ start: 99_990, end: 100_000 });
    expect(windowOf(9999, 280, 28, 0)).toEqual({ start: 0, end: 0 });
    expect(windowOf(9999, 280, 28, 3, 5)).toEqual({ start: 3, end: 3 });
    expect(windowOf(-50, 280, 28, 3, 0)).toEqual({ start: 0, end: 3 });
  });

  test('scrolling to a row goes no further than needed', () => {
    expect(scrollTo(0, 100, 280, 28)).toBe(0);
    expect(scrollTo(5, 100, 280, 28)).toBe(100);
    expect(scrollTo(20, 100, 280, 28)).toBe(308);
    expect(scrollTo(20, 100, 280, 28, 30)).toBe(338);
    expect(rowsPerPage(280, 28)).toBe(9);
    expect(rowsPerPage(10, 28)).toBe(1);
  });
});

test('the ticket in an address', () => {
  expect(ticketIn('#ticket=abc')).toBe('abc');
  expect(ticketIn('#ticket=a%2Bb')).toBe('a+b');
  expect(ticketIn('#ticket=')).toBeNull();
  expect(ticketIn('#jobs/3')).toBeNull();
  expect(ticketIn('')).toBeNull();
});

test('addresses of views', () => {
  expect(parseRoute('')).toEqual({ view: 'files', job: null });
  expect(parseRoute('#jobs/13')).toEqual({ view: 'jobs', job: 13 });
  expect(parseRoute('#jobs/x')).toEqual({ view: 'jobs', job: null });
  expect(parseRoute('#nonsense')).toEqual({ view: 'files', job: null });
  expect(routeFragment({ view: 'jobs', job: 13 })).toBe('#jobs/13');
  expect(routeFragment({ view: 'places', job: null })).toBe('#places');
});

describe('rates over time', () => {
  const progress = (routes: Record<string, number>, bps = 0): Progress =>
    ({ routes_bps: routes, bps });

  test('are columns of equal length', () => {
    const series = new RateSeries();
    series.add(progress({ direct: 5 }), 1);
    series.add(progress({ direct: 6, depot: 7 }), 2);
    series.add(progress({ depot: 8 }), 3);
    expect(series.times).toEqual([1, 2, 3]);
    expect(series.routes.get('direct')).toEqual([5, 6, null]);
    expect(series.routes.get('depot')).toEqual([null, 7, 8]);
  });

  test('are bounded, and ascend', () => {
    const series = new RateSeries();
    series.add(progress({ early: 1 }), 0);
    for (let now = 1; now <= 2000; now += 1) series.add(progress({ direct: now }), now);
    series.add(progress({ direct: 1 }), 2000);
    expect(series.times).toHaveLength(900);
    expect([...series.routes.keys()]).toEqual(['direct']);
    expect(series.routes.get('direct')).toHaveLength(900);
  });

  test('without routes are those of the whole', () => {
    const series = new RateSeries();
    series.add(progress({}, 9), 1);
    expect([...series.routes]).toEqual([['', [9]]]);
  });
});

describe('a report', () => {
  test('is read', () => {
    const report = readReport({
      explanation: 'the disk',
      files: 2,
      bytes: 10,
      seconds: 1.5,
      goodput_bps: 53,
      verification: { verified: true, root: 'abc' },
      routes: [{ route: 'direct', streams: [1, 2], bytes: 10, bps: 53 }],
      failures: [{ path: 'a', kind: 'io', message: 'no' }],
      failed: 3,
    });
    expect(report).toMatchObject({ explanation: 'the disk', files: 2, verified: true, hash: 'abc', failed: 3 });
    expect(report.routes).toEqual([{ route: 'direct', streams: 2, bytes: 10, bps: 53 }]);
  });

  test('of another shape is no failure', () => {
    for (const value of [null, 3, 'x', [], {}, { routes: 3, failures: [null], verification: 'x' }]) {
      expect(() => readReport(value)).not.toThrow();
    }
  });
});
