import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Job, JobState } from '../src/api/types';
import { stubBrowser } from './browser';

type Listener = (event: { data: string }) => void;

/** Event stream that the test controls. */
class Stream {
  static CLOSED = 2;
  static last: Stream;
  readyState = 1;
  #listeners = new Map<string, Listener>();

  constructor(readonly url: string) {
    Stream.last = this;
  }

  addEventListener(name: string, listener: Listener): void {
    this.#listeners.set(name, listener);
  }

  close(): void {
    this.readyState = Stream.CLOSED;
  }

  say(name: string, data: unknown = null): void {
    this.#listeners.get(name)?.({ data: JSON.stringify(data) });
  }
}

function job(id: number, state: JobState, change: number): Job {
  const request = { sources: ['/a'], destination: '/b/' } as Job['request'];
  return { id, user: 'ana', request, state, attempts: 1, created: '2026-01-01T00:00:00Z', change };
}

stubBrowser();
vi.stubGlobal('EventSource', Stream);
const { api, ApiError } = await import('../src/api/client');
const feed = await import('../src/state/jobs');

/** Jobs of the simulated agent. */
let kept: Job[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(api, 'jobs').mockImplementation(({ state }) =>
    Promise.resolve({ items: kept.filter((one) => state === undefined || one.state === state), next: null }),
  );
  vi.spyOn(api, 'job').mockImplementation((id) => {
    const found = kept.find((one) => one.id === id);
    return found ? Promise.resolve(found) : Promise.reject(new ApiError(404, '', ''));
  });
});

afterEach(() => {
  feed.stopFeed();
  vi.useRealTimers();
});

const ids = (jobs: readonly Job[]): number[] => jobs.map((one) => one.id);

describe('the jobs as they change', () => {
  test('lists first, then events, and what was missed after a gap', async () => {
    kept = [job(3, 'running', 30), job(2, 'queued', 20), job(1, 'done', 10)];
    feed.startFeed();
    expect(feed.connected.value).toBeNull();
    Stream.last.say('open');
    await vi.advanceTimersByTimeAsync(100);
    expect(feed.connected.value).toBe(true);
    expect(ids(feed.activeJobs.value)).toEqual([3, 2]);
    expect(ids(feed.historyJobs.value)).toEqual([1]);

    Stream.last.say('progress', { id: 3, progress: { bps: 8, bytes: 1, routes_bps: { direct: 8 } } });
    Stream.last.say('job', job(4, 'queued', 40));
    await vi.advanceTimersByTimeAsync(100);
    expect(ids(feed.activeJobs.value)).toEqual([3, 2, 4]);
    expect(feed.ratesOf(3)?.times).toHaveLength(1);

    // During the gap, one job ended and one was removed.
    const ended = vi.fn();
    feed.whenJobEnds(ended);
    Stream.last.readyState = 0;
    Stream.last.say('error');
    expect(feed.connected.value).toBe(false);
    kept = [job(4, 'queued', 40), job(3, 'done', 50), job(1, 'done', 10)];
    Stream.last.readyState = 1;
    Stream.last.say('open');
    await vi.advanceTimersByTimeAsync(100);
    expect(ids(feed.activeJobs.value)).toEqual([4]);
    expect(ids(feed.historyJobs.value)).toEqual([3, 1]);
    expect(ended).toHaveBeenCalledOnce();
  });

  test('begins again where the browser gives up, from behind the last change', async () => {
    const agent = vi.spyOn(api, 'agent').mockRejectedValueOnce(new ApiError(0, '', ''));
    agent.mockResolvedValue({ name: 'x', version: '1', jobs: {}, shared: false });
    feed.startFeed();
    const first = Stream.last;
    first.say('job', job(9, 'done', 90));
    first.readyState = Stream.CLOSED;
    first.say('error');
    await vi.advanceTimersByTimeAsync(3500);
    expect(Stream.last).toBe(first);
    await vi.advanceTimersByTimeAsync(3500);
    expect(Stream.last).not.toBe(first);
    expect(Stream.last.url).toBe('/api/v1/events?after=90');
  });
});
