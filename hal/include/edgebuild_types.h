/* SPDX-License-Identifier: 0BSD
 * The types of bit fields. A name that the source itself has, as some vendors' headers do, is left out. */
#ifndef EDGEBUILD_TYPES_H
#define EDGEBUILD_TYPES_H

/* Each width has the smallest unsigned type that holds it; a field is promoted and compared as that type. */
typedef unsigned char bit;
typedef unsigned char uint1; typedef unsigned char uint2; typedef unsigned char uint3; typedef unsigned char uint4;
typedef unsigned char uint5; typedef unsigned char uint6; typedef unsigned char uint7; typedef unsigned char uint8;
typedef unsigned short uint9; typedef unsigned short uint10; typedef unsigned short uint11; typedef unsigned short uint12;
typedef unsigned short uint13; typedef unsigned short uint14; typedef unsigned short uint15; typedef unsigned short uint16;
typedef unsigned int uint17; typedef unsigned int uint18; typedef unsigned int uint19; typedef unsigned int uint20;
typedef unsigned int uint21; typedef unsigned int uint22; typedef unsigned int uint23; typedef unsigned int uint24;
typedef unsigned int uint25; typedef unsigned int uint26; typedef unsigned int uint27; typedef unsigned int uint28;
typedef unsigned int uint29; typedef unsigned int uint30; typedef unsigned int uint31; typedef unsigned int uint32;
typedef unsigned long long uint33; typedef unsigned long long uint34; typedef unsigned long long uint35; typedef unsigned long long uint36;
typedef unsigned long long uint37; typedef unsigned long long uint38; typedef unsigned long long uint39; typedef unsigned long long uint40;
typedef unsigned long long uint41; typedef unsigned long long uint42; typedef unsigned long long uint43; typedef unsigned long long uint44;
typedef unsigned long long uint45; typedef unsigned long long uint46; typedef unsigned long long uint47; typedef unsigned long long uint48;
typedef unsigned long long uint49; typedef unsigned long long uint50; typedef unsigned long long uint51; typedef unsigned long long uint52;
typedef unsigned long long uint53; typedef unsigned long long uint54; typedef unsigned long long uint55; typedef unsigned long long uint56;
typedef unsigned long long uint57; typedef unsigned long long uint58; typedef unsigned long long uint59; typedef unsigned long long uint60;
typedef unsigned long long uint61; typedef unsigned long long uint62; typedef unsigned long long uint63; typedef unsigned long long uint64;

#endif
