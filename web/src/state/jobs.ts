// State of the jobs, loaded from lists and then updated by events.

import { computed, signal } from '@preact/signals';
import { api, ApiError, eventsUrl, randomKey } from '../api/client';
import type { Job, JobProgress, JobRequest } from '../api/types';
import { ACTIVE_STATES, JobStore, hasEnded, type Action, type HistoryFilter } from '../model/jobs';
import { RateSeries } from '../model/series';
import { complain } from './messages';

const PAGE = 200;
const ACTIVE_PAGE = 1000;
const RETRY_MS = 3000;
const MAX_SERIES = 50;

const store = new JobStore();
const series = new Map<number, RateSeries>();

/** True if events arrive; null before the first attempt to connect. */
export const connected = signal<boolean | null>(null);
export const filter = signal<HistoryFilter>('all');
export const loadingHistory = signal(false);

// Counters that the lists depend on. Progress, which arrives every second, has its own counter
// because the history does not depend on it.
const changes = signal(0);
const ticks = signal(0);

export const activeJobs = computed(() => {
  void changes.value;
  void ticks.value;
  return store.active();
});
export const historyJobs = computed(() => {
  void changes.value;
  return store.history(filter.value);
});
export const moreHistory = computed(() => {
  void changes.value;
  return store.next(filter.value) !== null;
});

export function jobNumbered(id: number): Job | undefined {
  void changes.value;
  void ticks.value;
  return store.get(id);
}

export function partsOf(id: number): Job[] {
  void changes.value;
  void ticks.value;
  return store.partsOf(id);
}

export function ratesOf(id: number): RateSeries | undefined {
  void ticks.value;
  return series.get(id);
}

let drawing = false;
let changed = false;

/** Redraws what depends on the store, at most once in 50 ms however many events arrive. */
function draw(isChange: boolean): void {
  changed ||= isChange;
  if (drawing) return;
  drawing = true;
  // A timer, because a page in the background gets no animation frames.
  window.setTimeout(() => {
    drawing = false;
    if (changed) changes.value += 1;
    else ticks.value += 1;
    changed = false;
  }, 50);
}

/** Called when a job ends while the page is open. */
let onEnd: (job: Job) => void = () => undefined;

export function whenJobEnds(call: (job: Job) => void): void {
  onEnd = call;
}

function put(job: Job): void {
  const before = store.get(job.id);
  if (!store.put(job)) return;
  if (before !== undefined && !hasEnded(before) && hasEnded(job)) onEnd(job);
  draw(true);
}

function putProgress(update: JobProgress): void {
  if (!store.progress(update)) return;
  let rates = series.get(update.id);
  if (rates === undefined) {
    rates = new RateSeries();
    series.set(update.id, rates);
    // Series of ended jobs stay until newer ones replace them.
    const oldest = series.keys().next();
    if (series.size > MAX_SERIES && oldest.done !== true) series.delete(oldest.value);
  }
  rates.add(update.progress, Date.now() / 1000);
  draw(false);
}

/** Loads a job that is unknown, or known only from before a gap. */
export async function readJob(id: number): Promise<void> {
  try {
    put(await api.job(id));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    store.remove(id);
    draw(true);
  }
}

/** Loads the parts of a job. Events keep them up to date. */
export async function readParts(id: number): Promise<void> {
  const page = await api.jobs({ part_of: id, limit: ACTIVE_PAGE });
  page.items.forEach(put);
}

/** Loads all lists. Events that arrive meanwhile are newer and take precedence. */
async function catchUp(): Promise<void> {
  const newest = store.newest();
  const before = store.active().map((job) => job.id);
  const seen = new Set<number>();
  for (const state of ACTIVE_STATES) {
    let next: number | null | undefined;
    do {
      const page = await api.jobs({ state, limit: ACTIVE_PAGE, ...(next ? { before: next } : {}) });
      for (const job of page.items) {
        put(job);
        seen.add(job.id);
      }
      next = page.next;
    } while (next);
  }
  const page = await api.jobs({ limit: PAGE });
  page.items.forEach(put);
  store.meetPage('all', page, newest);
  draw(true);
  // Jobs that ended or were removed in the gap.
  for (const id of before) if (!seen.has(id)) await readJob(id);
}

export async function loadHistory(): Promise<void> {
  if (loadingHistory.value) return;
  const wanted = filter.value;
  const next = store.next(wanted);
  if (next === null) return;
  loadingHistory.value = true;
  try {
    const page = await api.jobs({
      limit: PAGE,
      ...(wanted === 'all' ? {} : { state: wanted }),
      ...(next === undefined ? {} : { before: next }),
    });
    store.putPage(wanted, page);
    draw(true);
  } catch (error) {
    complain(error);
  } finally {
    loadingHistory.value = false;
  }
}

export function showHistory(wanted: HistoryFilter): void {
  filter.value = wanted;
  if (store.next(wanted) === undefined) void loadHistory();
}

let source: EventSource | null = null;
let retry = 0;

export function startFeed(): void {
  stopFeed();
  // Continues after the last known change. The first stream starts now, and the lists cover the
  // past.
  const stream = new EventSource(eventsUrl(store.lastChange));
  source = stream;
  stream.addEventListener('open', () => {
    connected.value = true;
    catchUp().catch(complain);
  });
  stream.addEventListener('job', (event: MessageEvent<string>) => {
    put(JSON.parse(event.data) as Job);
  });
  stream.addEventListener('progress', (event: MessageEvent<string>) => {
    putProgress(JSON.parse(event.data) as JobProgress);
  });
  stream.addEventListener('error', () => {
    connected.value = false;
    // The browser usually reconnects by itself. It gives up if an answer is not a stream.
    if (stream.readyState !== EventSource.CLOSED || source !== stream) return;
    retry = window.setTimeout(() => void again(), RETRY_MS);
  });
}

async function again(): Promise<void> {
  try {
    // An event stream does not report why it failed. This request does, and a 401 leads to signing
    // in.
    await api.agent();
    startFeed();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return;
    retry = window.setTimeout(() => void again(), RETRY_MS);
  }
}

export function stopFeed(): void {
  window.clearTimeout(retry);
  source?.close();
  source = null;
}

/** Requests an action of a job. */
export async function act(id: number, action: Action): Promise<void> {
  try {
    if (action === 'forget') {
      await api.forget(id);
      store.remove(id);
      draw(true);
    } else {
      put(await api.ask(id, action));
    }
  } catch (error) {
    complain(error);
    if (error instanceof ApiError && error.status === 404) {
      store.remove(id);
      draw(true);
    }
  }
}

/** Submits a copy. Without an answer it is sent once more with the same idempotency key. */
export async function submit(request: JobRequest): Promise<Job> {
  const key = randomKey();
  let job: Job;
  try {
    job = await api.submit(request, key);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 0) throw error;
    job = await api.submit(request, key);
  }
  put(job);
  return job;
}
