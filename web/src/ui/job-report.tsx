import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, ApiError } from '../api/client';
import type { Job } from '../api/types';
import { readReport, type Report } from '../model/report';
import { complain } from '../state/messages';
import { count, duration, rate, size, t, tn } from '../state/settings';
import { Name } from './name';

/** Final report of the last attempt. */
export function JobReport({ job }: { job: Job }) {
  const report = useSignal<Report | null>(null);
  useEffect(() => {
    let wanted = true;
    api
      .report(job.id)
      .then((value) => {
        if (wanted) report.value = readReport(value);
      })
      .catch((error: unknown) => {
        // A job that was cancelled before it ran has no report.
        if (!(error instanceof ApiError && error.status === 404)) complain(error);
      });
    return () => {
      wanted = false;
    };
  }, [job.id, job.change]);
  return (
    <section class="report" aria-labelledby="report-title">
      <h3 id="report-title">{t('report.title')}</h3>
      {report.value === null ? <p class="quiet">{t('report.none')}</p> : <Words report={report.value} />}
    </section>
  );
}

function Words({ report }: { report: Report }) {
  const { files, bytes, seconds, goodputBps } = report;
  return (
    <>
      {files !== null && bytes !== null && (files > 0 || bytes > 0) && (
        <p>
          {tn('report.copied', files, {
            size: size(bytes),
            time: duration(seconds ?? 0),
            rate: rate(goodputBps ?? 0),
          })}{' '}
          {report.unchangedFiles > 0 && tn('report.unchanged', report.unchangedFiles)}{' '}
          {report.resumedBytes > 0 && t('report.resumed', { size: size(report.resumedBytes) })}{' '}
          {report.encrypted !== null && t(report.encrypted ? 'report.encrypted' : 'report.clear')}
        </p>
      )}
      {report.explanation !== null && (
        <p>
          <strong>{t('report.limit')}:</strong> <Name text={report.explanation} />
        </p>
      )}
      {report.verified && report.hash !== null && (
        <p>
          {t('report.verified')} <code class="hash">{report.hash}</code>
        </p>
      )}
      {report.routes.length > 0 && <Routes report={report} />}
      {report.failed > 0 && <Failures report={report} />}
    </>
  );
}

function Routes({ report }: { report: Report }) {
  return (
    <table>
      <caption>{t('report.routes')}</caption>
      <thead>
        <tr>
          <th scope="col">{t('report.route')}</th>
          <th scope="col">{t('report.streams')}</th>
          <th scope="col">{t('job.amount')}</th>
          <th scope="col">{t('job.rate')}</th>
        </tr>
      </thead>
      <tbody>
        {report.routes.map((route) => (
          <tr key={route.route}>
            <th scope="row">
              <Name text={route.route} />
            </th>
            <td>{count(route.streams)}</td>
            <td>{size(route.bytes)}</td>
            <td>{rate(route.bps)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Failures({ report }: { report: Report }) {
  return (
    <details>
      <summary>{t('report.failures', { number: count(report.failed) })}</summary>
      <ul class="names">
        {report.failures.map((failure, index) => (
          <li key={index}>
            <Name text={failure.path} />: <Name text={failure.message} />
          </li>
        ))}
      </ul>
    </details>
  );
}
