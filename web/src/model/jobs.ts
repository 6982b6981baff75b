// All jobs the page knows of, fed by lists and by events. Of two views of a job the one with the greater `change` is the newer, so it
// does not matter in which order they arrive.

import type { Job, JobAction, JobPage, JobProgress, JobState } from '../api/types';

const ENDED: readonly JobState[] = ['done', 'failed', 'cancelled'];
/** Queue order: what runs is on top. */
const ORDER: Record<JobState, number> = {
  running: 0,
  split: 0,
  waiting: 1,
  queued: 2,
  paused: 3,
  done: 4,
  failed: 4,
  cancelled: 4,
};

export const ACTIVE_STATES: readonly JobState[] = ['running', 'split', 'waiting', 'queued', 'paused'];

/** What of the history is shown. */
export type HistoryFilter = 'all' | 'done' | 'failed' | 'cancelled';

export function hasEnded(job: Job): boolean {
  return ENDED.includes(job.state);
}

/** Whether it is worked on: by itself, or in parts. */
export function isUnderWay(job: Job): boolean {
  return job.state === 'running' || job.state === 'split';
}

/** How far the history was read for a filter: all jobs with this number or a greater one are known. */
interface Reach {
  down: number;
  next: number | null;
}

export class JobStore {
  #jobs = new Map<number, Job>();
  /** Parts of jobs: their jobs are listed, they are not. */
  #parts = new Map<number, Job>();
  #reach = new Map<HistoryFilter, Reach>();
  /** Jobs that ended while the page was there: shown in the history however old they are. */
  #endedHere = new Set<number>();
  #lastChange: number | null = null;

  /** The greatest change seen: where events go on. */
  get lastChange(): number | null {
    return this.#lastChange;
  }

  get(id: number): Job | undefined {
    return this.#jobs.get(id);
  }

  /** The parts of a job that are known, by number. */
  partsOf(id: number): Job[] {
    return [...this.#parts.values()].filter((part) => part.part?.job === id).sort((a, b) => a.id - b.id);
  }

  /** Takes a view of a job; false if a newer one is known. */
  put(job: Job): boolean {
    const kept = job.part === null || job.part === undefined ? this.#jobs : this.#parts;
    const known = kept.get(job.id);
    if (known !== undefined && known.change > job.change) return false;
    if (kept === this.#parts) {
      this.#parts.set(job.id, job);
      this.#lastChange = Math.max(this.#lastChange ?? 0, job.change);
      return true;
    }
    if (known !== undefined && !hasEnded(known) && hasEnded(job)) this.#endedHere.add(job.id);
    this.#jobs.set(job.id, job);
    this.#lastChange = Math.max(this.#lastChange ?? 0, job.change);
    return true;
  }

  /** Takes how far a job has come; false if it does not run as far as is known. */
  progress({ id, progress, parts }: JobProgress): boolean {
    const kept = this.#parts.has(id) ? this.#parts : this.#jobs;
    const job = kept.get(id);
    if (job === undefined || !isUnderWay(job)) return false;
    // Said of a job in parts it is no news of its own run, nor the other way round.
    if ((job.state === 'split') !== (parts !== null && parts !== undefined)) return false;
    kept.set(id, { ...job, progress, ...(parts ? { parts } : {}) });
    return true;
  }

  remove(id: number): void {
    this.#jobs.delete(id);
    for (const part of this.partsOf(id)) this.#parts.delete(part.id);
  }

  /** Takes a page of the history that was asked for with this filter. */
  putPage(filter: HistoryFilter, page: JobPage): void {
    for (const job of page.items) this.put(job);
    const oldest = page.items[page.items.length - 1]?.id;
    const next = page.next ?? null;
    const down = next === null ? 0 : (oldest ?? next);
    const before = this.#reach.get(filter);
    // The first page, read again after a reconnection, does not take back what was read further down.
    if (before === undefined || down < before.down) this.#reach.set(filter, { down, next });
  }

  /** Where the next page of the history begins: undefined before the first, null behind the last. */
  next(filter: HistoryFilter): number | null | undefined {
    return this.#reach.get(filter)?.next;
  }

  /** After a gap the first page has to meet what was known before; otherwise the history begins anew. */
  meetPage(filter: HistoryFilter, page: JobPage, newestKnown: number | null): void {
    const oldest = page.items[page.items.length - 1]?.id;
    if (newestKnown !== null && oldest !== undefined && oldest > newestKnown && (page.next ?? null) !== null) {
      this.#reach.clear();
    }
    this.putPage(filter, page);
  }

  /** The greatest number of a job. */
  newest(): number | null {
    let newest: number | null = null;
    for (const id of this.#jobs.keys()) if (newest === null || id > newest) newest = id;
    return newest;
  }

  /** Jobs that have not ended: what runs on top, then by priority and age. */
  active(): Job[] {
    return [...this.#jobs.values()]
      .filter((job) => !hasEnded(job))
      .sort(
        (a, b) =>
          ORDER[a.state] - ORDER[b.state] || (b.request.priority ?? 0) - (a.request.priority ?? 0) || a.id - b.id,
      );
  }

  /** Jobs that have ended, newest first, as far as the history was read without gaps. */
  history(filter: HistoryFilter): Job[] {
    const down = this.#reach.get(filter)?.down ?? Infinity;
    const all = this.#reach.get('all')?.down ?? Infinity;
    const from = Math.min(down, all);
    return [...this.#jobs.values()]
      .filter((job) => hasEnded(job) && (job.id >= from || this.#endedHere.has(job.id)) && (filter === 'all' || job.state === filter))
      .sort((a, b) => b.id - a.id);
  }
}

export type Action = JobAction | 'forget';

/** What may be asked of a job as it stands. */
export function actionsFor(job: Job): Action[] {
  switch (job.state) {
    case 'running':
    case 'split':
      if (job.stopping === 'cancel') return [];
      return job.stopping === 'pause' ? ['cancel'] : ['pause', 'cancel'];
    case 'queued':
      return ['pause', 'cancel'];
    case 'waiting':
      return ['retry', 'pause', 'cancel'];
    case 'paused':
      return ['resume', 'cancel'];
    case 'failed':
    case 'cancelled':
      return ['retry', 'forget'];
    case 'done':
      return ['forget'];
  }
}

/** What a job is called: its label, or what it copies where to. */
export function jobTitle(job: Job): { label: string | null; from: string; more: number; to: string } {
  const { sources, destination, label } = job.request;
  return { label: label ?? null, from: sources[0] ?? '', more: Math.max(0, sources.length - 1), to: destination };
}
