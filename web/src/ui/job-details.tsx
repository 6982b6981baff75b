import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Job } from '../api/types';
import { formatDuration, secondsLeft } from '../model/format';
import { hasEnded, isUnderWay } from '../model/jobs';
import { jobNumbered, partsOf, ratesOf, readJob, readParts } from '../state/jobs';
import { complain } from '../state/messages';
import { go } from '../state/route';
import { count, moment, rate, size, t } from '../state/settings';
import { JobActions, JobProgress, jobLine, stateText } from './job-row';
import { JobReport } from './job-report';
import { Name } from './name';
import { RatePlot } from './rate-plot';

/** Maximum number of sources shown at first. */
const MAX_SOURCES = 20;

/** Details of a job. */
export function JobDetails({ id }: { id: number }) {
  const job = jobNumbered(id);
  const missing = useSignal(false);
  const seen = useRef(false);
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    title.current?.focus();
    if (job !== undefined) return;
    readJob(id)
      .then(() => { missing.value = true; })
      .catch(complain);
    // Runs once, because another job has its own component.
  }, []);
  useEffect(() => {
    if (job !== undefined) seen.current = true;
    // The job was removed from the history.
    else if (seen.current) go({ view: 'jobs', job: null });
  }, [job === undefined]);
  return (
    <aside class="details" aria-label={t('job.details', { id })}>
      <div class="section-head">
        <h2 ref={title} tabIndex={-1}>
          {t('job.number', { id })}
        </h2>
        <a class="button" href="#jobs">
          {t('button.close')}
        </a>
      </div>
      {job === undefined ? <p>{missing.value && t('job.missing', { id })}</p> : <Details job={job} />}
    </aside>
  );
}

function Details({ job }: { job: Job }) {
  const series = ratesOf(job.id);
  return (
    <>
      <p>
        <span class={`state ${job.state}`}>{stateText(job)}</span> {jobLine(job)}
      </p>
      <JobProgress job={job} />
      {job.error !== null && job.error !== undefined && (
        <p class="error-text">
          {!hasEnded(job) && `${t('job.lastError')} `}
          <Name text={job.error} />
        </p>
      )}
      <JobActions job={job} />
      {job.parts && <Parts job={job} />}
      {(isUnderWay(job) || series !== undefined) && (
        <>
          <h3>{t('job.rates')}</h3>
          {series === undefined ? (
            <p class="quiet">{t('job.noRates')}</p>
          ) : (
            <RatePlot
              series={series}
              label={t('job.ratesLabel', { id: job.id, rate: rate(job.progress?.bps ?? 0) })}
            />
          )}
        </>
      )}
      {hasEnded(job) && <JobReport job={job} />}
      <Fields job={job} />
    </>
  );
}

/** Parts of a split job, each with its progress bar. */
function Parts({ job }: { job: Job }) {
  const { id } = job;
  useEffect(() => {
    readParts(id).catch(complain);
    // Loaded once; events keep them up to date.
  }, [id]);
  const { done = 0, of = 0 } = job.parts ?? {};
  return (
    <details class="parts">
      <summary>{t('job.partsDone', { done: count(done), of: count(of) })}</summary>
      <ul>
        {partsOf(id).map((part) => (
          <li key={part.id}>
            <span class="job-id">{count(part.part?.number ?? 0)}</span>{' '}
            <span class={`state ${part.state}`}>{stateText(part)}</span>{' '}
            {part.agent !== null && part.agent !== undefined && <Name text={part.agent} />}
            {!hasEnded(part) && <JobProgress job={part} />} <span class="job-words">{jobLine(part)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Field({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Returns the options that differ from their defaults, by their names on the command line. */
function optionTexts(job: Job): string[] {
  return Object.entries(job.request.options ?? {}).flatMap(([name, value]: [string, unknown]) => {
    const flag = name.replaceAll('_', '-');
    if (value === true) return [flag];
    if (Array.isArray(value)) return value.map((item) => `${flag}=${String(item)}`);
    if (typeof value === 'string' || typeof value === 'number') return [`${flag}=${String(value)}`];
    return [];
  });
}

function Sources({ sources }: { sources: readonly string[] }) {
  return (
    <ul class="names">
      {sources.map((source, index) => (
        <li key={index}>
          <Name text={source} />
        </li>
      ))}
    </ul>
  );
}

function Fields({ job }: { job: Job }) {
  const { request, progress } = job;
  const options = optionTexts(job);
  const left = progress && isUnderWay(job) ? secondsLeft(progress) : null;
  const moments = [
    ['job.created', job.created],
    ['job.started', job.started],
    ['job.ended', job.ended],
    ['job.due', job.due],
  ] as const;
  return (
    <dl class="fields">
      {request.label !== null && request.label !== undefined && (
        <Field name={t('job.label')}>
          <Name text={request.label} />
        </Field>
      )}
      <Field name={t('job.sources')}>
        <Sources sources={request.sources.slice(0, MAX_SOURCES)} />
        {request.sources.length > MAX_SOURCES && (
          <details>
            <summary>{t('names.more', { number: count(request.sources.length - MAX_SOURCES) })}</summary>
            <Sources sources={request.sources.slice(MAX_SOURCES)} />
          </details>
        )}
      </Field>
      <Field name={t('job.destination')}>
        <Name text={request.destination} />
      </Field>
      {options.length > 0 && (
        <Field name={t('job.options')}>
          <Name text={options.join(', ')} />
        </Field>
      )}
      {progress && (job.state !== 'done' || progress.walk_complete === true) && (
        <>
          <Field name={t('job.amount')}>
            {t(progress.walk_complete === true ? 'job.bytes' : 'job.bytesAtLeast', {
              bytes: size(progress.bytes ?? 0),
              found: size(progress.bytes_found ?? 0),
            })}
          </Field>
          <Field name={t('job.files')}>{count(progress.files ?? 0)}</Field>
          {isUnderWay(job) && <Field name={t('job.rate')}>{rate(progress.bps ?? 0)}</Field>}
        </>
      )}
      {left !== null && <Field name={t('job.time')}>{formatDuration(left)}</Field>}
      <Field name={t('job.attempts')}>{count(job.attempts)}</Field>
      {moments.map(([key, value]) =>
        value === null || value === undefined ? null : (
          <Field key={key} name={t(key)}>
            <time dateTime={value}>{moment(value, true)}</time>
          </Field>
        ),
      )}
      <Field name={t('job.user')}>
        <Name text={job.user} />
      </Field>
      {job.agent !== null && job.agent !== undefined && (
        <Field name={t('job.agent')}>
          <Name text={job.agent} />
        </Field>
      )}
      {(request.priority ?? 0) !== 0 && <Field name={t('job.priority')}>{String(request.priority)}</Field>}
      {request.on_end && (
        <Field name={t('job.onEnd')}>
          <Name text={request.on_end.join(' ')} />
        </Field>
      )}
      {job.exit_code !== null && job.exit_code !== undefined && (
        <Field name={t('job.exitCode')}>{String(job.exit_code)}</Field>
      )}
    </dl>
  );
}
