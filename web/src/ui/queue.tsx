import { activeJobs } from '../state/jobs';
import { route } from '../state/route';
import { t } from '../state/settings';
import { JobList } from './job-list';

/** Jobs that have not ended. */
export function Queue({ height }: { height: number }) {
  const jobs = activeJobs.value;
  if (jobs.length === 0) return <p class="quiet">{t('jobs.none')}</p>;
  return <JobList label={t('jobs.queue')} jobs={jobs} current={route.value.job} height={height} />;
}
