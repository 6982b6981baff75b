import { describe, expect, test } from 'vitest';
import type { Job, JobState } from '../src/api/types';
import { JobStore, actionsFor, jobTitle } from '../src/model/jobs';

function job(id: number, state: JobState, change: number, more: Partial<Job> = {}): Job {
  return {
    id,
    user: 'ana',
    request: { sources: ['/a'], destination: '/b/' },
    state,
    attempts: 1,
    created: '2026-01-01T00:00:00Z',
    change,
    ...more,
  };
}

const ids = (jobs: Job[]): number[] => jobs.map((one) => one.id);
const running = { bytes: 5, bytes_found: 10, walk_complete: true, bps: 8 } as NonNullable<Job['progress']>;

describe('the store of jobs', () => {
  test('keeps the newer of two views, in whatever order they come', () => {
    const store = new JobStore();
    expect(store.put(job(1, 'running', 5))).toBe(true);
    expect(store.put(job(1, 'queued', 4))).toBe(false);
    expect(store.get(1)?.state).toBe('running');
    expect(store.lastChange).toBe(5);
    expect(store.put(job(1, 'done', 6))).toBe(true);
    expect(store.active()).toEqual([]);
  });

  test('takes progress of jobs that run', () => {
    const store = new JobStore();
    expect(store.progress({ id: 1, progress: running })).toBe(false);
    store.put(job(1, 'running', 1));
    expect(store.progress({ id: 1, progress: running })).toBe(true);
    expect(store.get(1)?.progress?.bytes).toBe(5);
    store.put(job(1, 'done', 2));
    expect(store.progress({ id: 1, progress: running })).toBe(false);
  });

  test('orders the queue: what runs on top, then by priority and age', () => {
    const store = new JobStore();
    store.put(job(1, 'paused', 1));
    store.put(job(2, 'queued', 2));
    store.put(job(3, 'queued', 3, { request: { sources: ['/a'], destination: '/b', priority: 5 } }));
    store.put(job(4, 'running', 4));
    store.put(job(5, 'waiting', 5));
    store.put(job(6, 'done', 6));
    expect(ids(store.active())).toEqual([4, 5, 3, 2, 1]);
  });

  test('shows the history without gaps', () => {
    const store = new JobStore();
    expect(store.next('all')).toBeUndefined();
    store.putPage('all', { items: [job(20, 'done', 20), job(19, 'failed', 19)], next: 19 });
    // All failed jobs down to 5 are known, but none of the others below 19.
    store.putPage('failed', { items: [job(19, 'failed', 19), job(5, 'failed', 5)], next: 5 });
    expect(ids(store.history('all'))).toEqual([20, 19]);
    expect(ids(store.history('failed'))).toEqual([19, 5]);
    expect(store.next('all')).toBe(19);
    expect(store.next('failed')).toBe(5);
    store.putPage('all', { items: [job(7, 'cancelled', 7), job(5, 'failed', 5)] });
    expect(ids(store.history('all'))).toEqual([20, 19, 7, 5]);
    expect(store.next('all')).toBeNull();
    expect(ids(store.history('cancelled'))).toEqual([7]);
  });

  test('reading the first page again keeps what was read further down', () => {
    const store = new JobStore();
    store.putPage('all', { items: [job(20, 'done', 20)], next: 20 });
    store.putPage('all', { items: [job(19, 'done', 19)], next: 19 });
    store.meetPage('all', { items: [job(21, 'done', 21), job(20, 'done', 20)], next: 20 }, 20);
    expect(ids(store.history('all'))).toEqual([21, 20, 19]);
    expect(store.next('all')).toBe(19);
  });

  test('a page that does not meet what was known begins anew', () => {
    const store = new JobStore();
    store.putPage('all', { items: [job(20, 'done', 20)], next: 20 });
    store.meetPage('all', { items: [job(40, 'done', 40), job(39, 'done', 39)], next: 39 }, 20);
    expect(ids(store.history('all'))).toEqual([40, 39]);
  });

  test('a job that ends while the page is there shows in the history, however old', () => {
    const store = new JobStore();
    store.putPage('all', { items: [job(20, 'done', 20)], next: 20 });
    store.put(job(3, 'running', 3));
    store.put(job(3, 'done', 21));
    expect(ids(store.history('all'))).toEqual([20, 3]);
    store.remove(3);
    expect(ids(store.history('all'))).toEqual([20]);
  });

  test('parts of a job are shown with it, and not in the lists', () => {
    const store = new JobStore();
    const part = (id: number, number: number, state: JobState, change: number) =>
      job(id, state, change, { part: { job: 1, number, of: 2 } });
    const parts = (done: number) => ({ of: 2, running: 1, done, failed: 0, cancelled: 0 });
    store.put(job(1, 'split', 1, { parts: parts(0) }));
    store.put(part(3, 2, 'running', 3));
    store.put(part(2, 1, 'done', 4));
    expect(store.put(part(2, 1, 'running', 2))).toBe(false);
    expect(ids(store.active())).toEqual([1]);
    expect(ids(store.history('all'))).toEqual([]);
    expect(store.get(3)).toBeUndefined();
    expect(store.lastChange).toBe(4);
    expect(store.partsOf(1).map((one) => one.state)).toEqual(['done', 'running']);
    expect(store.progress({ id: 3, progress: running })).toBe(true);
    expect(store.partsOf(1)[1]?.progress).toEqual(running);
    expect(store.progress({ id: 1, progress: running, parts: parts(1) })).toBe(true);
    expect(store.get(1)?.parts?.done).toBe(1);
    // After its parts, the job runs by itself, and their progress no longer applies.
    store.put(job(1, 'running', 5));
    expect(store.progress({ id: 1, progress: running, parts: parts(1) })).toBe(false);
    expect(store.progress({ id: 1, progress: running })).toBe(true);
    store.remove(1);
    expect(store.partsOf(1)).toEqual([]);
  });

  test('ten thousand jobs are quick to show', () => {
    const store = new JobStore();
    store.putPage('all', { items: Array.from({ length: 10_000 }, (_, index) => job(10_000 - index, 'done', index)) });
    expect(store.history('all')).toHaveLength(10_000);
  });
});

test('what may be asked of a job', () => {
  expect(actionsFor(job(1, 'running', 1))).toEqual(['pause', 'cancel']);
  expect(actionsFor(job(1, 'running', 1, { stopping: 'pause' }))).toEqual(['cancel']);
  expect(actionsFor(job(1, 'running', 1, { stopping: 'cancel' }))).toEqual([]);
  expect(actionsFor(job(1, 'split', 1))).toEqual(['pause', 'cancel']);
  expect(actionsFor(job(1, 'split', 1, { stopping: 'cancel' }))).toEqual([]);
  expect(actionsFor(job(1, 'done', 1))).toEqual(['forget']);
  expect(actionsFor(job(1, 'failed', 1))).toEqual(['retry', 'forget']);
});

test('what a job is called', () => {
  expect(jobTitle(job(1, 'done', 1))).toEqual({ label: null, from: '/a', more: 0, to: '/b/' });
});
