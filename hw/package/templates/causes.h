/* Causes of errors: HEALD__ERROR__CAUSE */
{% for cause in isa.Cause %}
#define HEALD_CAUSE_{{ cause.name }} {{ cause.value }} /* {{ cause.meaning | comment }} */
{% endfor %}

