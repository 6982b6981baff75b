import type { Job } from '../api/types';
import { actionsFor, hasEnded, isUnderWay, jobTitle, type Action } from '../model/jobs';
import { formatDuration, secondsLeft } from '../model/format';
import { act } from '../state/jobs';
import { count, moment, rate, size, t } from '../state/settings';
import type { Key } from '../texts';
import { Name } from './name';

export function stateText(job: Job): string {
  const key: Key =
    job.stopping === 'pause'
      ? 'state.pausing'
      : job.stopping === 'cancel'
        ? 'state.cancelling'
        : `state.${job.state}`;
  return t(key);
}

/** Title of a job: its label, or its source and destination. */
export function JobTitle({ job }: { job: Job }) {
  const { label, from, more, to } = jobTitle(job);
  if (label !== null) return <Name text={label} />;
  return (
    <>
      <Name text={from} />
      {more > 0 && ` (+${count(more)})`} <span aria-hidden="true">→</span> <Name text={to} />
    </>
  );
}

/** Progress of a job, as a bar and in numbers. */
export function JobProgress({ job }: { job: Job }) {
  const progress = job.progress;
  if (!progress) return null;
  const { bytes = 0, bytes_found: found = 0, walk_complete: complete = false } = progress;
  // A copy of empty files counts as complete.
  const whole = job.state === 'done' || found === 0 ? 1 : found;
  return (
    <progress
      max={whole}
      value={job.state === 'done' ? 1 : Math.min(bytes, whole)}
      aria-label={t('job.progress', { id: job.id })}
      aria-valuetext={t(complete ? 'job.bytes' : 'job.bytesAtLeast', { bytes: size(bytes), found: size(found) })}
    />
  );
}

/** Returns the status line of a job. */
export function jobLine(job: Job): string {
  const parts: string[] = [];
  if (job.state === 'split' && job.parts) parts.push(t('job.partsDone', { done: count(job.parts.done), of: count(job.parts.of) }));
  const progress = job.progress;
  if (progress) {
    const { bytes = 0, bytes_found: found = 0, walk_complete: complete = false, bps = 0 } = progress;
    // After a copy of less than a second, the last progress may be incomplete.
    if (job.state === 'done') parts.push(...(complete ? [size(bytes)] : []));
    // Omitted if nothing was found yet, or the far end was not reached.
    else if (complete || found > 0) parts.push(t(complete ? 'job.bytes' : 'job.bytesAtLeast', { bytes: size(bytes), found: size(found) }));
    if (isUnderWay(job)) {
      parts.push(rate(bps));
      const left = secondsLeft(progress);
      if (left !== null) parts.push(t('job.left', { time: formatDuration(left) }));
    }
  }
  if (job.due !== null && job.due !== undefined) {
    const when = moment(job.due, true);
    if (job.state === 'waiting') parts.push(t('job.tryAgain', { moment: when }));
    // Most jobs are due at once, which is not worth showing.
    if (job.state === 'queued' && Date.parse(job.due) > Date.now()) parts.push(t('job.notBefore', { moment: when }));
  }
  if (hasEnded(job)) parts.push(moment(job.ended));
  return parts.join(' · ');
}

export function JobActions({ job, only }: { job: Job; only?: readonly Action[] }) {
  const actions = actionsFor(job).filter((action) => only === undefined || only.includes(action));
  return (
    <div class="job-actions">
      {actions.map((action) => (
        <button
          key={action}
          type="button"
          aria-label={t('action.of', { action: t(`action.${action}`), id: job.id })}
          onClick={() => void act(job.id, action)}
        >
          {t(`action.${action}`)}
        </button>
      ))}
    </div>
  );
}

interface Props {
  job: Job;
  current: boolean;
  top: number;
  position: number;
  of: number;
}

export function JobRow({ job, current, top, position, of }: Props) {
  return (
    <li
      class={current ? 'job current' : 'job'}
      style={{ transform: `translateY(${String(top)}px)` }}
      aria-posinset={position}
      aria-setsize={of}
    >
      <a class="job-title" href={`#jobs/${String(job.id)}`} aria-current={current ? 'true' : undefined}>
        <span class="job-id">{job.id}</span> <JobTitle job={job} />
      </a>
      <span class={`state ${job.state}`}>{stateText(job)}</span>
      <span class="job-line">
        {!hasEnded(job) && <JobProgress job={job} />}
        <span class="job-words">
          {jobLine(job)}
          {!isUnderWay(job) && job.error !== null && job.error !== undefined && (
            <span class="job-error">
              {' '}
              <Name text={job.error} />
            </span>
          )}
        </span>
      </span>
      <JobActions job={job} />
    </li>
  );
}
